import H2OChatScreen
import SwiftUI

/// Shows Markdown, parsed by the system: paragraphs, headings, lists, quotes, tables and code. If a
/// text is incomplete, shows the part that can be parsed. A link opens only after its address was
/// shown, and only if it is a page on the web.
struct MarkdownText: View {
    let text: String
    @Environment(\.openURL) private var openURL
    @State private var link: ReplyLink?

    var body: some View {
        VStack(alignment: .leading, spacing: 8) {
            // Indices identify blocks, because only the last blocks change while a reply
            // arrives.
            ForEach(Array(MarkdownBlock.blocks(of: text).enumerated()), id: \.offset) { _, block in
                BlockView(block: block)
            }
        }
        .environment(
            \.openURL,
            OpenURLAction { url in
                link = ReplyLink(url)
                return link == nil ? .discarded : .handled
            }
        )
        .alert("Open this page?", isPresented: isAsking, presenting: link) { link in
            Button("Open") { openURL(link.url) }
            Button("Cancel", role: .cancel) {}
        } message: { link in
            Text(verbatim: "\(link.host)\n\n\(link.address)")
        }
    }

    private var isAsking: Binding<Bool> {
        Binding {
            link != nil
        } set: { isAsked in
            if !isAsked { link = nil }
        }
    }
}

private struct BlockView: View {
    let block: MarkdownBlock

    var body: some View {
        switch block.kind {
        case .paragraph: Text(block.text)
        case .heading(let level): Text(block.text).font(level < 3 ? .title3.bold() : .headline)
        case .item(let mark, let depth):
            HStack(alignment: .firstTextBaseline) {
                Text(verbatim: mark).monospacedDigit()
                Text(block.text)
            }
            .padding(.leading, CGFloat(16 * (depth - 1)))
        case .quote:
            Text(block.text)
                .foregroundStyle(.secondary)
                .padding(.leading, 12)
        case .row(let isHeader): Text(block.text).bold(isHeader)
        case .rule: Divider()
        case .code:
            ScrollView(.horizontal) { Text(block.text).font(.callout.monospaced()) }
                .padding(8)
                .background(.gray.opacity(0.15), in: .rect(cornerRadius: 8))
        }
    }
}

/// A block of a Markdown text: a paragraph, a heading, an item and so on.
private struct MarkdownBlock {
    enum Kind {
        case paragraph
        case heading(Int)
        case item(mark: String, depth: Int)
        case quote
        case code
        case row(isHeader: Bool)
        case rule
    }

    let kind: Kind
    var text: AttributedString

    static func blocks(of markdown: String) -> [MarkdownBlock] {
        let options = AttributedString.MarkdownParsingOptions(
            interpretedSyntax: .full, failurePolicy: .returnPartiallyParsedIfPossible)
        guard let parsed = try? AttributedString(markdown: markdown, options: options) else {
            return [MarkdownBlock(kind: .paragraph, text: AttributedString(markdown))]
        }
        var blocks = [MarkdownBlock]()
        var last: (block: Int, part: Int)?
        for (intent, range) in parsed.runs[\.presentationIntent] {
            let text = AttributedString(parsed[range])
            // The innermost intent comes first: a cell before its row, a paragraph before its list
            // item.
            let components = intent?.components ?? []
            let part = components.first?.identity ?? 0
            let block = components.first { $0.isRow }?.identity ?? part
            if let last, last.block == block {
                if last.part != part { blocks[blocks.count - 1].text += AttributedString("   ") }
                blocks[blocks.count - 1].text += text
            } else {
                blocks.append(MarkdownBlock(kind: Kind(components), text: text))
            }
            last = (block, part)
        }
        return blocks
    }
}

extension MarkdownBlock.Kind {
    fileprivate init(_ components: [PresentationIntent.IntentType]) {
        self = .paragraph
        var (depth, mark) = (0, "")
        for component in components {
            switch component.kind {
            case .header(let level): self = .heading(level)
            case .codeBlock: self = .code
            case .blockQuote: self = .quote
            case .thematicBreak: self = .rule
            case .tableHeaderRow: self = .row(isHeader: true)
            case .tableRow: self = .row(isHeader: false)
            case .listItem(let ordinal): mark = mark.isEmpty ? "\(ordinal)." : mark
            case .orderedList: depth += 1
            case .unorderedList:
                if depth == 0 { mark = "\u{2022}" }
                depth += 1
            default: break
            }
        }
        if depth > 0, case .paragraph = self { self = .item(mark: mark, depth: depth) }
    }
}

extension PresentationIntent.IntentType {
    fileprivate var isRow: Bool {
        switch kind {
        case .tableHeaderRow, .tableRow: true
        default: false
        }
    }
}

#Preview {
    MarkdownText(text: "# Words\n\n- Some *words*\n- more\n\n```swift\nlet answer = 42\n```")
}
