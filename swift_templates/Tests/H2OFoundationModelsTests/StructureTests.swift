#if canImport(FoundationModels, _version: 2) && (os(Linux) || H2O_TEST_FOUNDATION_MODELS)
    import Foundation
    import FoundationModels
    import H2OFoundationModels
    import H2OSessions
    import H2OTestModels
    import XCTest

    /// Tests responses with a schema, from the request to the transcript.
    @available(iOS 27, macOS 27, visionOS 27, *)
    final class StructureTests: XCTestCase {
        private let greedy = GenerationOptions(samplingMode: .greedy)

        func testAResponseHasTheStructureThatIsAskedFor() async throws {
            let fixture = try Fixture(
                .qwen3, thinks: false, saying: #"{"city": "Oslo", "days": 3}"#)
            let session = fixture.session()

            let response = try await session.respond(
                to: "Where?", generating: Trip.self, options: greedy)

            XCTAssertEqual(response.content, Trip(city: "Oslo", days: 3))
            guard case .response(let entry)? = session.transcript.last,
                case .structure(let segment)? = entry.segments.first
            else { return XCTFail("\(session.transcript)") }
            XCTAssertEqual(segment.schemaName, "Trip")
        }

        func testAnH2OSessionGeneratesTheSameTypes() async throws {
            let session = H2OModel.scripted([#"{"city": "Oslo", "days": 3}"#]).makeSession()
            let response = try await session.respond(to: "Where?", generating: Trip.self)
            XCTAssertEqual(response.content, Trip(city: "Oslo", days: 3))
        }

        func testTheNextRequestGoesOnAfterWhatTheModelWrote() async throws {
            let fixture = try Fixture(
                .qwen3, thinks: false, saying: #"{"city":"Oslo","days":3}"#, "Welcome.")
            let session = fixture.session()
            try await session.respond(to: "Where?", generating: Trip.self, options: greedy)

            let usage = try await session.respond(to: "Thanks").usage

            let begin = ChatTemplate.qwen3.begin(thinks: false)
            let read = "\n<|im_start|>user\nThanks<|im_end|>\n" + begin
            XCTAssertEqual(usage.readTokenCount, TestTokenizer(.qwen3).tokens(of: read).count)
        }

        func testAToolThatMustBeCalledIsCalledOnceATurn() async throws {
            let fixture = try Fixture(
                .qwen3, thinks: false, saying: #"{"name": "add", "arguments": {"a": 1, "b": 2}}"#,
                "It is 3.")
            let session = fixture.session(tools: [Adder()])
            let options = GenerationOptions(samplingMode: .greedy, toolCallingMode: .required)

            let response = try await session.respond(to: "What is 1 + 2?", options: options)

            XCTAssertEqual(response.content, "It is 3.")
            XCTAssertEqual(
                session.transcript.map(\.kind),
                ["instructions", "prompt", "call add", "output 3", "response"])
        }
    }

    @available(iOS 27, macOS 27, visionOS 27, *)
    private struct Trip: Generable, Equatable, Sendable {
        let city: String
        let days: Int

        init(city: String, days: Int) { (self.city, self.days) = (city, days) }

        init(_ content: GeneratedContent) throws {
            city = try content.value(forProperty: "city")
            days = try content.value(forProperty: "days")
        }

        static var generationSchema: GenerationSchema {
            let text = """
                {"title": "Trip", "type": "object", "required": ["city", "days"],
                 "x-order": ["city", "days"], "properties": {
                   "city": {"type": "string", "maxLength": 4},
                   "days": {"type": "integer", "minimum": 0, "maximum": 9}}}
                """
            return try! JSONDecoder().decode(GenerationSchema.self, from: Data(text.utf8))
        }

        var generatedContent: GeneratedContent {
            GeneratedContent(properties: ["city": city, "days": days])
        }
    }
#endif
