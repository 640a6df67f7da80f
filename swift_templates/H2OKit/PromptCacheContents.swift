import MLX

/// Arrays and header of a file in mlx-lm's layout.
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

    mutating func add(_ state: [MLXArray], _ scalars: [Scalar], of cache: Int) {
        for (j, array) in state.enumerated() { arrays["\(cache).\(j)"] = array }
        add(scalars, of: cache, after: state.count)
    }

    /// The arrays are one member of the state.
    mutating func add(nested state: [MLXArray], _ scalars: [Scalar], of cache: Int) {
        for (j, array) in state.enumerated() { arrays["\(cache).0.\(j)"] = array }
        add(scalars, of: cache, after: 1)
    }

    private mutating func add(_ added: [Scalar], of cache: Int, after count: Int) {
        for (j, scalar) in added.enumerated() {
            let name = "\(cache).\(count + j)"
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
    }

    /// The arrays of a cache's state, and its numbers and texts as strings.
    func saved(_ cache: Int) -> (state: [MLXArray], strings: [String]) {
        if isOlder {
            return (H2OCacheFile.state("\(cache)", of: arrays), strings("0.\(cache)"))
        }
        let kinds = self.kinds
        var (state, strings) = ([MLXArray](), [String]())
        var name: String { "\(cache).\(member)" }
        var member = 0
        while true {
            let nested = H2OCacheFile.state(name, of: arrays)
            switch (arrays[name], kinds[name]) {
            case (nil, _) where nested.isEmpty: return (state, strings)
            case (nil, _): state += nested
            case (let number?, "scalar"):
                strings.append(number.asArray(Int32.self).first.map { String($0) } ?? "")
            case (let text?, "string"):
                let scalars = text.asArray(UInt32.self).compactMap(Unicode.Scalar.init)
                strings.append(String(String.UnicodeScalarView(scalars)))
            case (_, "none"): break
            case (let array?, _): state.append(array)
            }
            member += 1
        }
    }

    /// The strings `"prefix.0"`, `"prefix.1"` and so on.
    func strings(_ prefix: String) -> [String] {
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
