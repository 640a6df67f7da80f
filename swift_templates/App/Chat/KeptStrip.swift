import H2OKit
import SwiftUI

/// The conversation from left to right. Darker means that more heads keep a position.
struct KeptStrip: View {
    let kept: H2OKeptPositions

    var body: some View {
        VStack(alignment: .leading, spacing: 2) {
            Text("Kept positions of \(kept.shares.count)")
            Canvas { context, size in
                let stretches = kept.stretches(Int(size.width))
                let width = size.width / CGFloat(max(1, stretches.count))
                for (index, share) in stretches.enumerated() where share > 0 {
                    let place = CGRect(
                        x: CGFloat(index) * width, y: 0, width: width, height: size.height)
                    context.fill(Path(place), with: .color(.accentColor.opacity(Double(share))))
                }
            }
            .frame(height: 12)
            .background(.gray.opacity(0.15))
            .accessibilityLabel("Positions that the cache keeps")
        }
    }
}
