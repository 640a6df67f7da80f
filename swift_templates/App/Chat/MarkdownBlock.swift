/// A part of a Markdown text: lines between fences are code.
enum MarkdownBlock: Equatable {
    case text(String)
    case code(String)

    /// The blocks of a text, which may end within code. Empty ones are left out.
    static func blocks(of text: String) -> [MarkdownBlock] {
        var blocks = [MarkdownBlock]()
        var lines = [Substring]()
        var isCode = false
        func end() {
            let block = lines.joined(separator: "\n")
            let isEmpty = block.allSatisfy(\.isWhitespace)
            if !isEmpty { blocks.append(isCode ? .code(block) : .text(trimmed(block))) }
            lines = []
        }
        for line in text.split(separator: "\n", omittingEmptySubsequences: false) {
            if line.drop(while: { $0 == " " }).hasPrefix("```") {
                end()
                isCode.toggle()
            } else {
                lines.append(line)
            }
        }
        end()
        return blocks
    }

    private static func trimmed(_ text: String) -> String {
        let start = text.drop { $0.isNewline }
        return String(start.prefix(start.count - start.reversed().prefix { $0.isNewline }.count))
    }
}
