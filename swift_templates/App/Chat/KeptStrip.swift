import H2OSessions
import SwiftUI

/// Shows the positions of the conversation from left to right. The darker a position is, the
/// more heads keep it. Positions that the last prompt recalled are orange.
struct KeptStrip: View {
    let kept: H2OKeptPositions

    var body: some View {
        VStack(alignment: .leading, spacing: 2) {
            if kept.recalls {
                Text("Kept positions, out of \(kept.count); recalled ones are orange")
            } else {
                Text("Kept positions, out of \(kept.count)")
            }
            Canvas { context, size in
                draw(kept.shares(in: Int(size.width)), .accentColor, in: context, size)
                draw(kept.recalledShares(in: Int(size.width)), .orange, in: context, size)
            }
            .frame(height: 12)
            .background(.gray.opacity(0.15))
            .accessibilityLabel("Positions that the cache keeps")
        }
    }

    private func draw(
        _ shares: [Float], _ color: Color, in context: GraphicsContext, _ size: CGSize
    ) {
        let width = size.width / CGFloat(max(1, shares.count))
        for (index, share) in shares.enumerated() where share > 0 {
            let place = CGRect(x: CGFloat(index) * width, y: 0, width: width, height: size.height)
            context.fill(Path(place), with: .color(color.opacity(Double(share))))
        }
    }
}
