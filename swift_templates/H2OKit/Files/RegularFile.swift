import Foundation

/// Opens files that somebody else may have made. What is not a regular file, such as a pipe, might
/// never end. It is refused before it is read.
package enum RegularFile {
    /// The most bytes of a file of settings or records.
    private static let mostOfRecords = 64 << 20
    /// The most bytes of a file of caches, which must fit into memory.
    package static let mostOfCaches = Int(clamping: ProcessInfo.processInfo.physicalMemory)

    /// Opens a file to read it.
    ///
    /// - Parameter most: the most bytes that it may have
    /// - Throws: an error of the file system
    package static func opened(_ file: URL, most: Int = .max) throws -> FileHandle {
        // Opening a pipe must not wait.
        let path = file.path(percentEncoded: false)
        let descriptor = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)
        guard descriptor >= 0 else {
            throw failure(errno == ENOENT ? .fileReadNoSuchFile : .fileReadUnknown, file, errno)
        }
        let handle = FileHandle(fileDescriptor: descriptor, closeOnDealloc: true)
        var status = stat()
        guard fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG else {
            throw failure(.fileReadUnsupportedScheme, file)
        }
        guard status.st_size <= most else { throw failure(.fileReadTooLarge, file) }
        return handle
    }

    /// - Throws: an error of the file system if there is no regular file, or a longer one
    package static func check(_ file: URL, most: Int = .max) throws {
        try opened(file, most: most).close()
    }

    /// The bytes of a file of settings or records.
    ///
    /// - Throws: an error of the file system, also for a file of more than 64 MiB
    package static func data(_ file: URL) throws -> Data {
        let handle = try opened(file, most: mostOfRecords)
        defer { try? handle.close() }
        return try handle.readToEnd() ?? Data()
    }

    /// - Parameter number: the number of the system's error; nil if there is none
    package static func failure(
        _ code: CocoaError.Code, _ file: URL, _ number: Int32? = nil
    ) -> CocoaError {
        var info: [String: Any] = [NSFilePathErrorKey: file.path]
        info[NSUnderlyingErrorKey] = number.map {
            NSError(domain: NSPOSIXErrorDomain, code: Int($0))
        }
        return CocoaError(code, userInfo: info)
    }
}
