import Foundation

#if canImport(Metal)
    import MachO
#endif

extension MetalCheck {
    /// The check of this process. It looks in more places than MLX does, so that it never
    /// refuses an app that would run. In a simulator MLX runs on the CPU, and this says so.
    package static let system: MetalCheck = {
        #if targetEnvironment(simulator)
            MetalCheck {
                H2OWarning.simulator
                return nil
            }
        #elseif canImport(Metal)
            MetalCheck { bundleFolders + binaryFolders + [URL(filePath: ".")] }
        #else
            MetalCheck { nil }
        #endif
    }()

    #if canImport(Metal)
        private static var bundleFolders: [URL] {
            ([Bundle.main] + Bundle.allBundles + Bundle.allFrameworks)
                .filter { !isSystem($0.bundlePath) }
                .flatMap { [$0.bundleURL, $0.resourceURL].compactMap { $0 } }
        }

        /// The folders of all binaries of this process except the system's.
        private static var binaryFolders: [URL] {
            (0 ..< _dyld_image_count())
                .compactMap { _dyld_get_image_name($0).map { String(cString: $0) } }
                .filter { !isSystem($0) }
                .map { URL(filePath: $0).deletingLastPathComponent() }
        }

        private static func isSystem(_ path: String) -> Bool {
            path.hasPrefix("/System/") || path.hasPrefix("/usr/lib/")
        }
    #endif
}
