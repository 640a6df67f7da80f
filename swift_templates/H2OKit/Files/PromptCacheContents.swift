import MLX

/// Arrays and header of a file in mlx-lm's layout.
///
/// Member j of cache i's state is named `"i.j"`: an array, or a number, text or nothing, which
/// the header says (`"2.k.0"` the name, `"2.k.1"` what it is). The state of cache j in a list
/// is `"i.j.0"`, and the name of its class `"i.j.1"`. The header holds the caller's strings
/// as `"0.key"` and class names as `"1.i"` too. Files of mlx-lm 0.31 and before are read as
/// well: there the header has all numbers and texts, each cache's before those others.
struct PromptCacheContents {
    /// What a state has besides arrays.
    enum Scalar {
        case number(Int)
        case text(String)
        case none
    }

    var arrays = [String: MLXArray]()
    var header = ["2.0": ""]
    private var scalars = 0

    init() {}

    init(arrays: [String: MLXArray], header: [String: String]) {
        self.arrays = arrays
        self.header = header
    }

    /// Whether mlx-lm 0.31 or before wrote it: class names are where kinds of scalars are now.
    var isOlder: Bool { header["2.0"] != "" }

    mutating func add(_ state: [MLXArray], _ scalars: [Scalar], at place: String) {
        for (j, array) in state.enumerated() { arrays["\(place).\(j)"] = array }
        add(scalars, at: place, after: state.count)
    }

    /// The arrays are one member of the state.
    mutating func add(nested state: [MLXArray], _ scalars: [Scalar], at place: String) {
        for (j, array) in state.enumerated() { arrays["\(place).0.\(j)"] = array }
        add(scalars, at: place, after: 1)
    }

    private mutating func add(_ added: [Scalar], at place: String, after count: Int) {
        for (j, scalar) in added.enumerated() { add(scalar, at: "\(place).\(count + j)") }
    }

    mutating func add(_ scalar: Scalar, at name: String) {
        scalars += 1
        header["2.\(scalars).0"] = name
        switch scalar {
        case .number(let number):
            header["2.\(scalars).1"] = "scalar"
            arrays[name] = MLXArray([Int32(clamping: number)])
        case .text(let text):
            header["2.\(scalars).1"] = "string"
            arrays[name] = MLXArray(text.unicodeScalars.map { Int32($0.value) })
        case .none:
            header["2.\(scalars).1"] = "none"
            arrays[name] = MLXArray([Int32(0)])
        }
    }

    /// The arrays of a cache's state, and its numbers and texts as strings.
    func saved(at place: String) -> (state: [MLXArray], strings: [String]) {
        if isOlder {
            return (H2OCacheFile.state(place, of: arrays), strings("0.\(place)"))
        }
        let kinds = self.kinds
        var (state, strings) = ([MLXArray](), [String]())
        var name: String { "\(place).\(member)" }
        var member = 0
        while true {
            let nested = H2OCacheFile.state(name, of: arrays)
            switch (arrays[name], kinds[name]) {
            case (nil, _) where nested.isEmpty: return (state, strings)
            case (nil, _): state += nested
            case (let number?, "scalar"):
                strings.append(number.asArray(Int32.self).first.map { String($0) } ?? "")
            case (let text?, "string"): strings.append(Self.text(text))
            case (_, "none"): break
            case (let array?, _): state.append(array)
            }
            member += 1
        }
    }

    /// The classes of all caches.
    var classNames: [String] { strings(isOlder ? "2" : "1") }

    /// The classes of the caches in a list.
    func memberNames(of list: Int) -> [String] {
        let kinds = self.kinds
        var names = [String]()
        while let name = arrays["\(list).\(names.count).1"],
            kinds["\(list).\(names.count).1"] == "string"
        {
            names.append(Self.text(name))
        }
        return names
    }

    /// The caller's strings.
    var metadata: [String: String] {
        let prefix = isOlder ? "1." : "0."
        let own = header.filter { $0.key.hasPrefix(prefix) }
        return Dictionary(own.map { (String($0.dropFirst(2)), $1) }) { first, _ in first }
    }

    private static func text(_ scalars: MLXArray) -> String {
        let scalars = scalars.asArray(UInt32.self).compactMap(Unicode.Scalar.init)
        return String(String.UnicodeScalarView(scalars))
    }

    /// The strings `"prefix.0"`, `"prefix.1"` and so on.
    private func strings(_ prefix: String) -> [String] {
        var strings = [String]()
        while let text = header["\(prefix).\(strings.count)"] { strings.append(text) }
        return strings
    }

    private var kinds: [String: String] {
        var (kinds, k) = ([String: String](), 1)
        while let name = header["2.\(k).0"] {
            kinds[name] = header["2.\(k).1"]
            k += 1
        }
        return kinds
    }
}
