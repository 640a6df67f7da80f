import Foundation
import H2OKit
import XCTest

final class MetalCheckTests: XCTestCase {
    private var app = URL(filePath: "/")

    override func setUpWithError() throws {
        app = FileManager.default.temporaryDirectory.appending(path: UUID().uuidString)
        try FileManager.default.createDirectory(at: app, withIntermediateDirectories: true)
    }

    override func tearDownWithError() throws {
        try FileManager.default.removeItem(at: app)
    }

    func testTheKernelsAreFoundAsEachSystemLaysThemOut() throws {
        for place in [
            "mlx-swift_Cmlx.bundle/default.metallib",
            "mlx-swift_Cmlx.bundle/Contents/Resources/default.metallib",
            "mlx.metallib",
        ] {
            let library = try put("MTLB", at: place)
            try check()
            try FileManager.default.removeItem(at: library)
        }
    }

    func testABundleWithoutItsKernelsIsRefusedWithWhatToDo() throws {
        _ = try put("{}", at: "mlx-swift_Cmlx.bundle/Info.plist")

        XCTAssertThrowsError(try check()) { error in
            XCTAssertEqual(error as? H2OLoadingError, .noMetalLibrary(searched: [app]))
            let said = error.localizedDescription
            XCTAssertTrue(said.contains(app.path), said)
            XCTAssertTrue(said.contains("build with Xcode or xcodebuild"), said)
        }
    }

    func testAnEmptyLibraryIsNone() throws {
        _ = try put("", at: "mlx-swift_Cmlx.bundle/default.metallib")

        XCTAssertThrowsError(try check())
    }

    func testWhereMLXNeedsNoKernelsNothingIsLookedFor() throws {
        try MetalCheck { nil }.check()
    }

    private func check() throws {
        let folders = [app]
        try MetalCheck { folders }.check()
    }

    private func put(_ text: String, at path: String) throws -> URL {
        let url = app.appending(path: path)
        try FileManager.default.createDirectory(
            at: url.deletingLastPathComponent(), withIntermediateDirectories: true)
        try Data(text.utf8).write(to: url)
        return url
    }
}
