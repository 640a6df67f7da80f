#if os(Linux) && canImport(FoundationModels, _version: 2)
    import FoundationModels

    extension Transcript.Entry {
        static func instructions(_ text: String) -> Transcript.Entry {
            .instructions(
                Transcript.Instructions(segments: [.text(text)], toolDefinitions: []))
        }

        static func prompt(_ text: String) -> Transcript.Entry {
            .prompt(Transcript.Prompt(segments: [.text(text)]))
        }

        static func response(_ text: String) -> Transcript.Entry {
            .response(Transcript.Response(segments: [.text(text)]))
        }

        static func reasoning(_ text: String) -> Transcript.Entry {
            .reasoning(Transcript.Reasoning(segments: [.text(text)]))
        }

        static func output(_ text: String, of call: Transcript.ToolCall) -> Transcript.Entry {
            .toolOutput(
                Transcript.ToolOutput(
                    id: call.id, toolName: call.toolName, segments: [.text(text)]))
        }
    }

    extension Transcript.Segment {
        static func text(_ text: String) -> Transcript.Segment {
            .text(Transcript.TextSegment(content: text))
        }
    }
#endif
