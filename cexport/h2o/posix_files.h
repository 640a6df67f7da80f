#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// File functions over the system's calls. Each returns 0 or errno.
namespace h2o::posix {

/// An open file, closed with the object (and its lock released).
class File {
 public:
  File() = default;
  explicit File(int descriptor) : descriptor_(descriptor) {
  }
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  int descriptor() const {
    return descriptor_;
  }

 private:
  int descriptor_ = -1;
};

/// The content of a file, mapped into memory until the object ends. The system reads it when it
/// is used, and may take back the memory.
class Mapping {
 public:
  Mapping() = default;
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  std::string_view bytes() const {
    return {static_cast<const char*>(begin_), size_};
  }

  /// Whether the file at `path` is still the one that was mapped, of the same size and time of
  /// its last change. The bytes of a shorter file must not be read.
  bool is_intact(const std::string& path) const;

 private:
  friend int map(const std::string& path, Mapping& mapping);
  void* begin_ = nullptr;
  size_t size_ = 0;
  uint64_t file_ = 0;
  int64_t changed_ = 0; // nanoseconds
};

/// Maps a file that is not empty; refuses a link.
int map(const std::string& path, Mapping& mapping);

/// Opens a file for reading; refuses a link.
int open_to_read(const std::string& path, File& file);

/// Reads the text of a file of at most `most` bytes; EFBIG for a larger one.
int read_text(const std::string& path, size_t most, std::string& text);

/// Writes a file that only its owner can read. It is written under a temporary name and
/// renamed, so that it is complete or absent.
int write_whole(const std::string& path, const std::vector<std::string_view>& pieces);

/// Makes a folder that only its owner can read, unless it exists.
int make_folder(const std::string& path);

/// Checks that a path is a folder of this user and not a link; ENOTDIR or EPERM
/// otherwise.
int check_own_folder(const std::string& path);

/// Opens and locks `path`; EWOULDBLOCK if another holder has the lock.
int lock(const std::string& path, File& file);

/// The names in a folder, sorted.
int names_in(const std::string& folder, std::vector<std::string>& names);

int remove_file(const std::string& path); ///< 0 also if it does not exist

} // namespace h2o::posix
