extension Decoder {
    /// Throws the error that `error` makes of the first field with none of these names.
    func refuseFields(except names: [String], _ error: (String) -> any Error) throws {
        for field in try container(keyedBy: AnyField.self).allKeys
        where !names.contains(field.stringValue) {
            throw error(field.stringValue)
        }
    }
}

/// Any key of a JSON object.
private struct AnyField: CodingKey {
    let stringValue: String
    let intValue: Int? = nil

    init?(stringValue: String) {
        self.stringValue = stringValue
    }

    init?(intValue: Int) {
        nil
    }
}
