#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

/// Files by the system's calls, which say why they fail: every function gives 0 or errno.
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

/// A piece of memory to write.
struct Piece {
  const void* data;
  size_t size;
};

/// Opens a file for reading that is no link.
int open_to_read(const std::string& path, File& file);

/// Bytes in an open file.
int size_of(const File& file, uint64_t& size);

/// All of `size` bytes from `begin` on; ENODATA where the file ends before.
int read_at(const File& file, uint64_t begin, void* to, size_t size);

/// The text of a file of at most `most` bytes; EFBIG for a larger one.
int read_text(const std::string& path, size_t most, std::string& text);

/// Writes a file for its owner only, whole or not at all: under a temporary name first,
/// which is removed where that fails.
int write_whole(const std::string& path, const std::vector<Piece>& pieces);

/// Makes a folder for its owner only, unless it is there.
int make_folder(const std::string& path);

/// 0 for a folder of this user that is no link; ENOTDIR or EPERM for anything else.
int check_own_folder(const std::string& path);

/// Opens `path` as this process's own, or EWOULDBLOCK where another holds it.
int lock(const std::string& path, File& file);

/// The names in a folder, sorted, without "." and "..".
int names_in(const std::string& folder, std::vector<std::string>& names);

int remove_file(const std::string& path);   ///< 0 as well where there is none
int remove_folder(const std::string& path); ///< 0 as well where there is none

} // namespace h2o::posix
