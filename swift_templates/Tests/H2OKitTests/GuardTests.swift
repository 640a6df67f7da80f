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
        // A system without a limit reports 0 free bytes.
        for free in [1234, nil, FreeMemory.known(0)] {
            try MemoryGuard { free }.check(plan, of: "m")
        }
        XCTAssertThrowsError(try MemoryGuard { FreeMemory.known(1) }.check(plan, of: "m"))
    }

    func testTheSystemKnowsItsFreeMemory() throws {
        #if targetEnvironment(simulator)
            XCTAssertNil(MemoryGuard.system.free)
        #else
            XCTAssertGreaterThan(try XCTUnwrap(MemoryGuard.system.free), 1 << 20)
        #endif
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

final class MetalCheckTests: FolderTestCase {
    func testTheKernelsAreFoundAsEachSystemLaysThemOut() throws {
        for place in [
            "mlx-swift_Cmlx.bundle/default.metallib",
            "mlx-swift_Cmlx.bundle/Contents/Resources/default.metallib",
            "mlx.metallib",
        ] {
            let library = try write("MTLB", to: place)
            try check()
            try FileManager.default.removeItem(at: library)
        }
    }

    func testABundleWithoutItsKernelsIsRefusedWithWhatToDo() throws {
        // An empty library is none.
        for (text, name) in [("{}", "Info.plist"), ("", "default.metallib")] {
            try write(text, to: "mlx-swift_Cmlx.bundle/" + name)

            XCTAssertThrowsError(try check()) { error in
                XCTAssertEqual(error as? H2OLoadingError, .noMetalLibrary(searched: [folder]))
                let message = error.localizedDescription
                XCTAssertTrue(message.contains(folder.path), message)
                XCTAssertTrue(message.contains("build with Xcode or xcodebuild"), message)
            }
        }
    }

    func testWhereMLXNeedsNoKernelsNothingIsLookedFor() throws {
        try MetalCheck { nil }.check()
    }

    private func check() throws {
        let folders = [folder]
        try MetalCheck { folders }.check()
    }
}
