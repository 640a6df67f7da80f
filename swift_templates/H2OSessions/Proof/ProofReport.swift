import Foundation
import H2OKit
import MLXLMCommon

/// What one device showed, in the form that `h2o-pack prove --check` reads.
package struct ProofReport: Sendable {
    let setting: H2OProofSetting
    let machine: ProofMachine
    /// Of the model's manifest; empty if it has none.
    let modelDigest: String
    let started: Date
    /// Until the last check.
    let duration: Duration
    let checks: [ProofCheck]

    /// The document.
    ///
    /// - Throws: an error of `JSONEncoder`
    func data() throws -> Data {
        var fields = self.fields
        fields["checksum"] = .string(ProofChecksum.of(.object(fields)))
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
        return try encoder.encode(JSONValue.object(fields))
    }

    private var fields: [String: JSONValue] {
        [
            "format": .int(1), "tool": .string("app"), "commit": .string(""),
            "started": time(started),
            "finished": time(started.addingTimeInterval(duration / .seconds(1))),
            "versions": .object(setting.versions.mapValues(JSONValue.string)),
            "machine": machine.json,
            "digests": .object([
                "model": .string(modelDigest), "package": .string(""), "kernels": .string(""),
            ]),
            "setting": .object([
                "model": .string(setting.model), "max_kv": .int(setting.maxKV),
                "kv": .string(setting.kv), "context": .int(setting.context),
                "prefill_step": .int(setting.prefillStep), "backend": .string(machine.backend),
            ]),
            "checks": .array(checks.map(\.json)),
            "counts": .object([
                "as_expected": count(.asExpected), "differs": count(.differs),
                "measured": count(.measured), "not_run": count(.notRun),
            ]),
        ]
    }

    private func count(_ verdict: ProofVerdict) -> JSONValue {
        .int(checks.count { $0.verdict == verdict })
    }

    private func time(_ date: Date) -> JSONValue {
        .string(date.formatted(.iso8601))
    }
}

/// The checksum of a report, as docs/proving.md of h2o-pack defines it.
enum ProofChecksum {
    /// 64 hexadecimal digits.
    static func of(_ document: JSONValue) -> String {
        let sorted = lines(of: document, at: "").sorted {
            $0.utf8.lexicographicallyPrecedes($1.utf8)
        }
        var hash = SHA256Hash()
        hash.update(data: Data(sorted.joined().utf8))
        return hash.hexadecimal
    }

    /// A line for each value.
    private static func lines(of value: JSONValue, at path: String) -> [String] {
        func below(_ key: String) -> String { path.isEmpty ? key : "\(path).\(key)" }
        switch value {
        case .object(let fields):
            return fields.flatMap { lines(of: $1, at: below($0)) }
        case .array(let values):
            return values.enumerated().flatMap { lines(of: $1, at: below("\($0)")) }
        case .string(let text): return ["\(path)=s\(text)\n"]
        case .double(let number): return ["\(path)=n\(bits(number))\n"]
        case .int(let number): return ["\(path)=n\(bits(Double(number)))\n"]
        case .bool(let truth): return ["\(path)=\(truth)\n"]
        case .null: return ["\(path)=null\n"]
        }
    }

    /// 16 hexadecimal digits; minus zero counts as zero.
    private static func bits(_ number: Double) -> String {
        let digits = String((number + 0).bitPattern, radix: 16)
        return String(repeating: "0", count: 16 - digits.count) + digits
    }
}
