#if os(Linux) && canImport(FoundationModels, _version: 2)
    import FoundationModels
    import H2OSessions
    import XCTest

    @testable import H2OFoundationModels

    final class ErrorTests: XCTestCase {
        func testOnlyWhatCanNeverBeReadExceedsTheContextSize() throws {
            let errors: [H2OSessionError] = [
                .systemPromptTooLong(tokens: 70, atMost: 60),
                .promptTooLong(tokens: 70, atMost: 60),
            ]
            for error in errors {
                guard case .contextSizeExceeded(let exceeded) = LanguageModelError(engine: error)
                else { return XCTFail("\(error)") }
                XCTAssertEqual(exceeded.tokenCount, 70)
                XCTAssertEqual(exceeded.contextSize, 60)
                XCTAssertEqual(exceeded.debugDescription, error.errorDescription)
            }
            XCTAssertNil(LanguageModelError(engine: H2OSessionError.busy))
        }

        func testASchemaThatCannotBeFollowedIsAnUnsupportedGuide() {
            let error = H2OSessionError.invalidSchema(.unsupported(keyword: "not", place: "/a"))
            guard case .unsupportedGenerationGuide(let guide) = LanguageModelError(engine: error)
            else { return XCTFail("\(error)") }
            XCTAssertEqual(guide.debugDescription, error.errorDescription)
        }

        func testAReplyWithoutRoomForTheSchemaIsAnUnsupportedGuide() {
            let error = H2OSessionError.noRoomForSchema(tokens: 9, atMost: 4)
            guard case .unsupportedGenerationGuide(let guide) = LanguageModelError(engine: error)
            else { return XCTFail("\(error)") }
            XCTAssertEqual(guide.debugDescription, error.errorDescription)
        }

        func testASchemaWithoutAnEngineForItIsAnUnsupportedCapability() {
            let error = H2OSessionError.noGrammarEngine(version: "1")
            guard case .unsupportedCapability(let missing) = LanguageModelError(engine: error)
            else { return XCTFail("\(error)") }
            XCTAssertEqual(missing.debugDescription, error.errorDescription)
        }
    }
#endif
