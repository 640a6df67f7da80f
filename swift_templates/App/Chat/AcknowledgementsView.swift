import H2OSessions
import SwiftUI

/// Lists the works in the app and their licenses.
struct AcknowledgementsView: View {
    let works: [H2OAcknowledgement]

    var body: some View {
        List(works) { work in
            NavigationLink {
                WorkView(work: work)
            } label: {
                LabeledContent(work.name, value: work.license)
            }
        }
        .navigationTitle("Acknowledgements")
        .navigationBarTitleDisplayMode(.inline)
    }
}

private struct WorkView: View {
    let work: H2OAcknowledgement

    var body: some View {
        ScrollView {
            VStack(alignment: .leading, spacing: 12) {
                if let page = URL(string: work.source), page.scheme == "https" {
                    Link(work.source, destination: page)
                }
                Text(work.text)
                    .font(.footnote)
                    .textSelection(.enabled)
            }
            .frame(maxWidth: .infinity, alignment: .leading)
            .padding()
        }
        .navigationTitle(work.name)
    }
}

#Preview {
    NavigationStack {
        AcknowledgementsView(works: [
            H2OAcknowledgement(name: "A model", license: "MIT", source: "", text: ["Its terms."])
        ])
    }
}
