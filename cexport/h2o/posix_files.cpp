#include "posix_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

namespace h2o::posix {

namespace {

constexpr size_t most_at_once = size_t(1) << 20;

int open_retrying(const std::string& path, int flags, File& file) {
  int descriptor;
  do {
    descriptor = ::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, 0600);
  } while (descriptor < 0 && errno == EINTR);
  if (descriptor < 0) {
    return errno;
  }
  file = File(descriptor);
  return 0;
}

int write_all(const File& file, std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t written =
        ::write(file.descriptor(), bytes.data(), std::min(bytes.size(), most_at_once));
    if (written < 0 && errno != EINTR) {
      return errno;
    }
    bytes.remove_prefix(static_cast<size_t>(std::max<ssize_t>(written, 0)));
  }
  return 0;
}

int write_pieces(const std::string& path, const std::vector<std::string_view>& pieces) {
  File file;
  // An existing file may belong to another user, or be a second name of another file, so
  // it is never written to.
  ::unlink(path.c_str());
  int error = open_retrying(path, O_WRONLY | O_CREAT | O_EXCL, file);
  for (std::string_view piece : pieces) {
    error = error != 0 ? error : write_all(file, piece);
  }
  return error;
}

int errno_unless(bool good) {
  return good ? 0 : errno;
}

} // namespace

File::File(File&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {
}

File& File::operator=(File&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

File::~File() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

namespace {

/// The time of a file's last change, in nanoseconds.
int64_t changed_at(const struct stat& status) {
#ifdef __APPLE__
  const auto& time = status.st_mtimespec;
#else
  const auto& time = status.st_mtim;
#endif
  return int64_t(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

} // namespace

Mapping::Mapping(Mapping&& other) noexcept {
  *this = std::move(other);
}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(begin_, other.begin_);
  std::swap(size_, other.size_);
  std::swap(file_, other.file_);
  std::swap(changed_, other.changed_);
  return *this;
}

Mapping::~Mapping() {
  if (begin_ != nullptr) {
    ::munmap(begin_, size_);
  }
}

bool Mapping::is_intact(const std::string& path) const {
  struct stat status;
  return ::lstat(path.c_str(), &status) == 0 &&
         static_cast<size_t>(status.st_size) == size_ &&
         static_cast<uint64_t>(status.st_ino) == file_ && changed_at(status) == changed_;
}

namespace {

/// Opens a file for reading; EINVAL if it is something else.
int open_regular(const std::string& path, File& file, struct stat& status) {
  if (int error = open_to_read(path, file); error != 0) {
    return error;
  }
  if (::fstat(file.descriptor(), &status) != 0) {
    return errno;
  }
  return S_ISREG(status.st_mode) ? 0 : EINVAL;
}

} // namespace

int map(const std::string& path, Mapping& mapping) {
  File file;
  struct stat status;
  if (int error = open_regular(path, file, status); error != 0) {
    return error;
  }
  if (status.st_size == 0) {
    return EINVAL;
  }
  Mapping mapped;
  mapped.size_ = static_cast<size_t>(status.st_size);
  void* begin = ::mmap(nullptr, mapped.size_, PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
  if (begin == MAP_FAILED) {
    return errno;
  }
  mapped.begin_ = begin;
  mapped.file_ = static_cast<uint64_t>(status.st_ino);
  mapped.changed_ = changed_at(status);
  mapping = std::move(mapped);
  return 0;
}

int open_to_read(const std::string& path, File& file) {
  return open_retrying(path, O_RDONLY | O_NONBLOCK, file); // opening a pipe must not wait
}

int read_text(const std::string& path, size_t most, std::string& text) {
  File file;
  struct stat status;
  if (int error = open_regular(path, file, status); error != 0) {
    return error;
  }
  text.clear();
  std::vector<char> buffer(most_at_once);
  while (text.size() <= most) {
    const ssize_t read = ::read(file.descriptor(), buffer.data(), buffer.size());
    if (read == 0) {
      return 0;
    }
    if (read < 0 && errno != EINTR) {
      return errno;
    }
    text.append(buffer.data(), static_cast<size_t>(std::max<ssize_t>(read, 0)));
  }
  return EFBIG;
}

int write_whole(const std::string& path, const std::vector<std::string_view>& pieces) {
  const std::string temporary = path + ".new";
  int error = write_pieces(temporary, pieces);
  if (error == 0) {
    error = errno_unless(::rename(temporary.c_str(), path.c_str()) == 0);
  }
  if (error != 0) {
    ::unlink(temporary.c_str());
  }
  return error;
}

int make_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) == 0) {
    return 0;
  }
  int error = errno;
  struct stat status;
  if (error == EEXIST && ::stat(path.c_str(), &status) == 0) {
    return S_ISDIR(status.st_mode) ? 0 : ENOTDIR;
  }
  return error;
}

int check_own_folder(const std::string& path) {
  struct stat status;
  if (::lstat(path.c_str(), &status) != 0) {
    return errno;
  }
  if (!S_ISDIR(status.st_mode)) {
    return ENOTDIR;
  }
  return status.st_uid == ::geteuid() ? 0 : EPERM;
}

int lock(const std::string& path, File& file) {
  for (int attempt = 0; attempt < 8; attempt++) {
    if (int error = open_retrying(path, O_RDWR | O_CREAT, file); error != 0) {
      return error;
    }
    if (::flock(file.descriptor(), LOCK_EX | LOCK_NB) != 0) {
      int error = errno;
      file = File();
      return error;
    }
    // The previous holder may have deleted the folder meanwhile.
    struct stat held, named;
    if (::fstat(file.descriptor(), &held) == 0 && ::stat(path.c_str(), &named) == 0 &&
        held.st_ino == named.st_ino && held.st_dev == named.st_dev) {
      return 0;
    }
  }
  return EAGAIN;
}

int names_in(const std::string& folder, std::vector<std::string>& names) {
  names.clear();
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    names.push_back(entry->path().filename());
  }
  std::sort(names.begin(), names.end());
  return error.value();
}

int remove_file(const std::string& path) {
  int error = errno_unless(::unlink(path.c_str()) == 0);
  return error == ENOENT ? 0 : error;
}

} // namespace h2o::posix
