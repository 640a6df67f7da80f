public protocol AccelerateBuffer {
    associatedtype Element
}
extension Array: AccelerateBuffer {}

public enum vDSP {
    public static func add<T: AccelerateBuffer, U: AccelerateBuffer>(
        _ vectorA: T, _ vectorB: U
    ) -> [Double] where T.Element == Double, U.Element == Double { fatalError() }
    public static func divide<U: AccelerateBuffer>(
        _ vector: U, _ scalar: Double
    ) -> [Double] where U.Element == Double { fatalError() }
    public static func dot<U: AccelerateBuffer>(
        _ vectorA: U, _ vectorB: U
    ) -> Double where U.Element == Double { fatalError() }
    public static func sumOfSquares<U: AccelerateBuffer>(
        _ vector: U
    ) -> Double where U.Element == Double { fatalError() }
}
