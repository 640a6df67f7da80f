// Stands in for the types of images, which need MLX. `parity --level text` reads only text.

public typealias Message = [String: any Sendable]

public struct UserInput {
    public enum Image: Sendable {}
    public enum Video: Sendable {}
    public enum Audio: Sendable {}

    enum Prompt {
        case text(String)
        case messages([Message])
        case chat([Chat.Message])
    }

    let prompt: Prompt
}
