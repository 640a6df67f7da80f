/// Letters and spaces by a linear congruential generator: the same for the same seed.
struct RandomText {
    private var state: UInt64

    init(seed: UInt64) {
        state = seed
    }

    /// So many characters, the first one a letter.
    mutating func next(_ count: Int) -> String {
        let letters = Array("etaoinshrdlucmfwyp ".utf8)
        var text = [UInt8]()
        while text.count < count {
            state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
            let letter = letters[Int(state >> 33) % letters.count]
            if letter != letters[letters.count - 1] || !text.isEmpty { text.append(letter) }
        }
        // A text of its own takes no more room than it needs.
        return String(decoding: text, as: UTF8.self)
    }
}
