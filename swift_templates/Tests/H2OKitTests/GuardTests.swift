import Foundation
import H2OKit
import XCTest

final class MemoryTests: XCTestCase {
    private let plan = MemoryPlan(
        weights: 800, caches: 200, prefill: 30, bufferCache: 4, thoughts: 200)

    func testAShortageSaysWhatIsNeededAndWhatIsFree() {
        let guarded = MemoryGuard { 1000 }

        XCTAssertThrowsError(try guarded.check(plan, of: "m")) { error in
            XCTAssertEqual(
                error as? H2OLoadingError,
                .noMemory(needs: ["m": plan], free: 1000))
            XCTAssertEqual(
                error.localizedDescription,
                "1000 bytes are free, and m needs 1234 (weights 800, caches 200, prefill 30, "
                    + "buffers 4, before thoughts 200). Release other memory, check that the app has both memory "
                    + "entitlements, or package a smaller model or a smaller --max-kv.")
        }
    }

    func testWhatFitsAndWhatIsUnknownPasses() throws {
        try MemoryGuard { 1234 }.check(plan, of: "m")
        try MemoryGuard { nil }.check(plan, of: "m")
    }

    func testASystemWithoutALimitRefusesNothing() throws {
        try MemoryGuard { FreeMemory.known(0) }.check(plan, of: "m")
        XCTAssertThrowsError(try MemoryGuard { FreeMemory.known(1) }.check(plan, of: "m"))
    }

    private struct Candidate: Identifiable {
        let id: String
        let plan: MemoryPlan

        init(_ id: String, _ weights: Int) {
            self.id = id
            plan = MemoryPlan(weights: weights, caches: 0, prefill: 0, bufferCache: 0)
        }
    }

    func testTheFirstOfSeveralModelsThatFitsIsTaken() throws {
        let models = [
            Candidate("large", 3000), Candidate("medium", 2000), Candidate("small", 1000),
        ]
        func taken(_ free: Int?) throws -> String {
            try MemoryGuard { free }.first(of: models, plan: \.plan).id
        }

        XCTAssertEqual(try taken(3000), "large")
        XCTAssertEqual(try taken(2999), "medium")
        XCTAssertEqual(try taken(1000), "small")
        XCTAssertEqual(try taken(nil), "large")
        XCTAssertThrowsError(try taken(999)) { error in
            XCTAssertEqual(
                error as? H2OLoadingError,
                .noMemory(
                    needs: Dictionary(uniqueKeysWithValues: models.map { ($0.id, $0.plan) }),
                    free: 999))
        }
    }

    func testTheSystemKnowsItsFreeMemory() throws {
        #if targetEnvironment(simulator)
            XCTAssertNil(MemoryGuard.system.free)
        #else
            XCTAssertGreaterThan(try XCTUnwrap(MemoryGuard.system.free), 1 << 20)
        #endif
    }

    func testTheFootprintNowAndAtMostIsInBytes() throws {
        let known = Footprint.known(status: "VmHWM:\t    20 kB\nVmRSS:\t    10 kB\n")
        XCTAssertEqual(known?.now, 10 << 10)
        XCTAssertEqual(known?.most, 20 << 10)
        XCTAssertNil(Footprint.known(status: "VmRSS:\t    10 kB\n"))
        XCTAssertGreaterThan(try XCTUnwrap(Footprint.bytes).most, 1 << 20)
    }

    func testAPhoneHasAPlanOfItsOwn() {
        let tablet = MemoryPlan(weights: 1000, caches: 200, prefill: 50, bufferCache: 4)
        func chosen(_ machine: String) -> MemoryPlan {
            .onThisDevice(phone: plan, tablet: tablet, machine: machine)
        }

        XCTAssertEqual(chosen("iPhone16,1"), plan)
        XCTAssertEqual(chosen("iPad14,8"), tablet)
        XCTAssertEqual(chosen("arm64"), tablet)
        XCTAssertFalse(MemoryPlan.machineName().isEmpty)
    }
}

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
