/// What a model's chat template does. `h2o-pack` finds it by rendering the template, and writes it
/// into the manifest.
package struct ChatFacts: Codable, Hashable, Sendable {
    /// How the model thinks before it answers.
    package struct Thinking: Codable, Hashable, Sendable {
        /// The mark before thoughts.
        package var begin: String
        /// The mark after thoughts.
        package var end: String
        /// The template's variable that turns thoughts on and off; nil if there is none.
        package var variable: String?

        package init(begin: String, end: String, variable: String? = nil) {
            (self.begin, self.end, self.variable) = (begin, end, variable)
        }
    }

    /// Whether the model has a template.
    package var template: Bool
    /// Whether the template writes a system prompt.
    package var system: Bool
    /// Whether the template writes tools, calls and their results.
    package var tools: Bool
    /// nil if the model does not think.
    package var thinking: Thinking?
    /// Whether the template leaves thoughts out of earlier turns.
    package var dropsThoughts: Bool
    /// The tokens that end a reply.
    package var stops: Set<Int>
    /// Texts that end a reply, if the template ends it with plain text.
    package var stopTexts: [String]

    private enum CodingKeys: String, CodingKey {
        case template, system, tools, thinking, stops
        case dropsThoughts = "drops_thoughts"
        case stopTexts = "stop_texts"
    }

    package init(
        template: Bool = true, system: Bool = true, tools: Bool = true, thinking: Thinking? = nil,
        dropsThoughts: Bool = false, stops: Set<Int> = [], stopTexts: [String] = []
    ) {
        self.template = template
        self.system = system
        self.tools = tools
        self.thinking = thinking
        self.dropsThoughts = dropsThoughts
        self.stops = stops
        self.stopTexts = stopTexts
    }
}
