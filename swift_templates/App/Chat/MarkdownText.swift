import SwiftUI

/// Markdown: emphasis, links and code within lines, and blocks of code.
struct MarkdownText: View {
    let text: String

    var body: some View {
        VStack(alignment: .leading, spacing: 8) {
            // Blocks change only at the end while a reply arrives.
            ForEach(Array(MarkdownBlock.blocks(of: text).enumerated()), id: \.offset) { _, block in
                switch block {
                case .text(let text): Text(inline(text))
                case .code(let code): codeBlock(code)
                }
            }
        }
    }

    private func codeBlock(_ code: String) -> some View {
        ScrollView(.horizontal) {
            Text(code).font(.callout.monospaced())
        }
        .padding(8)
        .background(.gray.opacity(0.15), in: .rect(cornerRadius: 8))
    }

    /// Half-written Markdown is shown as it is.
    private func inline(_ text: String) -> AttributedString {
        let options = AttributedString.MarkdownParsingOptions(
            interpretedSyntax: .inlineOnlyPreservingWhitespace)
        return (try? AttributedString(markdown: text, options: options)) ?? AttributedString(text)
    }
}

#Preview {
    MarkdownText(text: "Some *words*:\n\n```swift\nlet answer = 42\n```\n\nand `code`.")
}
