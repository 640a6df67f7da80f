import Foundation

/// Answers the items of a request, each in a line of JSON, beginning with the item whose index is
/// the second argument. If an item ends the program, its caller starts it again after that item.
@main
struct Program {
    static func main() async {
        let arguments = CommandLine.arguments
        guard arguments.count == 3, let first = Int(arguments[2]) else {
            fail("usage: h2o-text REQUEST FIRST")
        }
        do {
            let data = try Data(contentsOf: URL(filePath: arguments[1]))
            let request = try JSONDecoder().decode(Request.self, from: data)
            let model = ModelText(folder: URL(filePath: request.model), stops: request.stops)
            for (index, item) in request.items.enumerated().dropFirst(first) {
                try write(await item.answer(model), index)
            }
        } catch {
            fail("\(arguments[1]): \(error)")
        }
    }

    private static func write(_ answer: Answer, _ index: Int) throws {
        var answer = answer
        answer.item = index
        let encoder = JSONEncoder()
        encoder.nonConformingFloatEncodingStrategy = .convertToString(
            positiveInfinity: "Infinity", negativeInfinity: "-Infinity", nan: "NaN")
        FileHandle.standardOutput.write(try encoder.encode(answer) + Data("\n".utf8))
    }

    private static func fail(_ message: String) -> Never {
        FileHandle.standardError.write(Data("\(message)\n".utf8))
        exit(2)
    }
}
