import MLXLMCommon

/// The texts with which models call the tool `weather`, in one format.
struct WrittenCalls {
    /// A call for the city Oslo.
    let one: String
    /// Calls for the cities Oslo and Rome; nil if a turn can have only one call.
    let two: String?
    /// A call that cannot be parsed.
    let unreadable: String
    /// A call that was cut off by the end of the turn.
    let cutOff: String
    /// A call of the tool `news`, which does not exist.
    let undeclared: String

    /// The texts of a format; nil for a format without an example here.
    static func of(_ format: ToolCallFormat) -> WrittenCalls? { all[format.rawValue] }

    /// The text of an answer without calls.
    static func answer(_ text: String, _ format: ToolCallFormat) -> String {
        format.rawValue == "atem" ? " to=user<|message|>\(text)<|eom|>" : text
    }

    /// The text between two calls.
    static func separator(_ format: ToolCallFormat) -> String {
        format.rawValue == "atem" ? "<|start|>assistant" : "\n"
    }

    /// The texts by the name of the format. Names are used because not every version of
    /// mlx-swift-lm has every format.
    private static let all = [
        "json": WrittenCalls(
            tagged("<tool_call>", "</tool_call>") { name, city in
                #"{"name": "\#(name)", "arguments": {"city": "\#(city)"}}"#
            },
            unreadable: #"<tool_call>{"name": "weather", "arguments": {"city": }}</tool_call>"#,
            cutOff: #"<tool_call>{"name": "weather", "argum"#),
        "lfm2": WrittenCalls(
            one: list([("weather", "Oslo")]), two: list([("weather", "Oslo"), ("weather", "Rome")]),
            unreadable: "<|tool_call_start|>[weather city]<|tool_call_end|>",
            cutOff: "<|tool_call_start|>[weather(city='Oslo'), weather(city='R",
            undeclared: list([("news", "Oslo")])),
        "xml_function": xml,
        "qwen3_5": xml,
        "glm4": WrittenCalls(
            tagged("<tool_call>", "</tool_call>") { name, city in
                "\(name)\n<arg_key>city</arg_key>\n<arg_value>\(city)</arg_value>\n"
            },
            unreadable: "<tool_call>weather in Oslo</tool_call>",
            cutOff: "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Os"),
        "gemma": gemma("<start_function_call>", "<end_function_call>", quote: "<escape>"),
        "gemma4": gemma("<|tool_call>", "<tool_call|>", quote: "<|\"|>"),
        "kimi_k2": WrittenCalls(
            one: kimi([("weather", "Oslo")]), two: kimi([("weather", "Oslo"), ("weather", "Rome")]),
            unreadable: "<|tool_calls_section_begin|><|tool_call_begin|>weather"
                + "<|tool_call_end|><|tool_calls_section_end|>",
            cutOff: "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0"
                + "<|tool_call_argument_begin|>{\"city\": \"Os",
            undeclared: kimi([("news", "Oslo")])),
        "minimax_m2": WrittenCalls(
            one: minimax([("weather", "Oslo")]),
            two: minimax([("weather", "Oslo"), ("weather", "Rome")]),
            unreadable: "<minimax:tool_call>\n<invoke weather>\n</minimax:tool_call>",
            cutOff: "<minimax:tool_call>\n<invoke name=\"weather\">\n<parameter name=\"city\">Os",
            undeclared: minimax([("news", "Oslo")])),
        "mistral": WrittenCalls(
            tagged("[TOOL_CALLS]", "") { name, city in
                #"\#(name)[ARGS]{"city": "\#(city)"}"#
            },
            unreadable: #"[TOOL_CALLS]weather[ARGS]{"city": Oslo}"#,
            cutOff: #"[TOOL_CALLS]weather[ARGS]{"city": "Os"#),
        "llama3": WrittenCalls(
            tagged("", "") { name, city in
                #"{"name": "\#(name)", "parameters": {"city": "\#(city)"}}"#
            },
            unreadable: #"{"name": "weather", "parameters": {"city": Oslo}}"#,
            cutOff: #"{"name": "weather", "parameters": {"city": "Os"#),
        "atem": WrittenCalls(
            one: atem("weather", "Oslo"),
            two: atem("weather", "Oslo") + "<|start|>assistant" + atem("weather", "Rome"),
            unreadable: " to=weather<|message|>Oslo<|eom|>",
            cutOff: " to=weather<|message|><atem:function_calls>\n<atem:invoke",
            undeclared: atem("news", "Oslo")),
        "gpt_oss": WrittenCalls(
            one: harmony("weather", #"{"city": "Oslo"}"#), two: nil,
            unreadable: harmony("weather", #"{"city": "#),
            cutOff: "<|channel|>commentary to=functions.weather<|message|>{\"city\"",
            undeclared: harmony("news", #"{"city": "Oslo"}"#)),
    ]

    private static let xml = WrittenCalls(
        tagged("<tool_call>", "</tool_call>") { name, city in
            "\n<function=\(name)>\n<parameter=city>\n\(city)\n</parameter>\n</function>\n"
        },
        unreadable: "<tool_call>\n<function=weather\n</tool_call>",
        cutOff: "<tool_call>\n<function=weather>\n<parameter=city>\nOs")

    private static func gemma(_ start: String, _ end: String, quote: String) -> WrittenCalls {
        WrittenCalls(
            tagged(start, end) { name, city in "call:\(name){city:\(quote)\(city)\(quote)}" },
            unreadable: "\(start)call:weather\(end)",
            cutOff: "\(start)call:weather{city:\(quote)Oslo\(quote),days:{a:1}")
    }

    private static func list(_ calls: [(name: String, city: String)]) -> String {
        let calls = calls.map { "\($0.name)(city='\($0.city)')" }.joined(separator: ", ")
        return "<|tool_call_start|>[\(calls)]<|tool_call_end|>"
    }

    private static func kimi(_ calls: [(name: String, city: String)]) -> String {
        let calls = calls.enumerated().map { index, call in
            "<|tool_call_begin|>functions.\(call.name):\(index)<|tool_call_argument_begin|>"
                + "{\"city\": \"\(call.city)\"}<|tool_call_end|>"
        }
        return "<|tool_calls_section_begin|>\(calls.joined())<|tool_calls_section_end|>"
    }

    private static func minimax(_ calls: [(name: String, city: String)]) -> String {
        let calls = calls.map {
            "<invoke name=\"\($0.name)\">\n<parameter name=\"city\">\($0.city)</parameter>\n"
                + "</invoke>\n"
        }
        return "<minimax:tool_call>\n\(calls.joined())</minimax:tool_call>"
    }

    private static func atem(_ name: String, _ city: String) -> String {
        " to=\(name)<|message|><atem:function_calls>\n<atem:invoke name=\"\(name)\">\n"
            + "<atem:parameter name=\"city\">\(city)</atem:parameter>\n</atem:invoke>\n"
            + "</atem:function_calls><|eom|>"
    }

    private static func harmony(_ name: String, _ arguments: String) -> String {
        "<|channel|>commentary to=functions.\(name) <|constrain|>json"
            + "<|message|>\(arguments)<|call|>"
    }

    private static func tagged(
        _ start: String, _ end: String, _ call: @escaping (String, String) -> String
    ) -> (String, String) -> String {
        { start + call($0, $1) + end }
    }
}

extension WrittenCalls {
    /// Makes the texts of a format in which one call follows another.
    private init(_ call: (String, String) -> String, unreadable: String, cutOff: String) {
        self.init(
            one: call("weather", "Oslo"),
            two: call("weather", "Oslo") + "\n" + call("weather", "Rome"),
            unreadable: unreadable, cutOff: cutOff, undeclared: call("news", "Oslo"))
    }
}
