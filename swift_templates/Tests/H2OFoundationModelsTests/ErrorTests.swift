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
            let error = H2OSchemaError.unsupported(keyword: "not", place: "/a")
            guard case .unsupportedGenerationGuide(let guide) = LanguageModelError(engine: error)
            else { return XCTFail("\(error)") }
            XCTAssertEqual(guide.debugDescription, error.errorDescription)
        }

        func testArgumentsThatAreNoObjectAreAnUnsupportedGuide() {
            let error = H2OSessionError.invalidSchema("The parameters are no object.")
            guard case .unsupportedGenerationGuide(let guide) = LanguageModelError(engine: error)
            else { return XCTFail("\(error)") }
            XCTAssertEqual(guide.debugDescription, error.errorDescription)
        }
    }
#endif
