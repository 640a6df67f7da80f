extension H2OCaches: Codable {
    /// The fields by their names in files.
    private enum Field: String, CodingKey, CaseIterable {
        case configuration = "config"
        case storage = "kv"
        case groupSize = "group_size"
        case budgets
    }

    /// Reads settings; fields other than `config` may be missing and have their defaults.
    ///
    /// - Throws: `DecodingError`, ``H2OCacheError``
    public init(from decoder: any Decoder) throws {
        let names = Field.allCases.map(\.rawValue)
        try decoder.refuseFields(except: names) {
            H2OCacheError.invalidConfiguration(.unknownField(field: $0, known: names))
        }
        let fields = try decoder.container(keyedBy: Field.self)
        try self.init(
            configuration: fields.decode(H2OConfiguration.self, forKey: .configuration),
            storage: Self.storage(fields.decodeIfPresent(String.self, forKey: .storage)),
            groupSize: fields.decodeIfPresent(Int.self, forKey: .groupSize) ?? 64,
            budgets: fields.decodeIfPresent(H2OBudgets.self, forKey: .budgets))
        try H2OStorage.check(groupSize: groupSize)
    }

    public func encode(to encoder: any Encoder) throws {
        var fields = encoder.container(keyedBy: Field.self)
        try fields.encode(configuration, forKey: .configuration)
        try fields.encode(storage, forKey: .storage)
        try fields.encode(groupSize, forKey: .groupSize)
        try fields.encodeIfPresent(budgets, forKey: .budgets)
    }

    private static func storage(_ name: String?) throws -> H2OStorage {
        guard let name else { return .dense }
        guard let storage = H2OStorage(rawValue: name) else {
            throw H2OCacheError.invalidConfiguration(
                .unknownChoice(
                    field: Field.storage.rawValue, value: name,
                    known: H2OStorage.allCases.map(\.rawValue)))
        }
        return storage
    }
}
