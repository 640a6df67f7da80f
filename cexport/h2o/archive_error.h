#pragma once

#include <cerrno>
#include <stdexcept>
#include <string>

/// What can be wrong with an archive in files. Words are made where they are shown.
namespace h2o {

struct ArchiveFailure {
  std::string code; ///< one of archive_codes
  std::string path; ///< the file or folder
  int error = 0;    ///< errno, or 0 where the system refused nothing
};

namespace archive_codes {

// At opening.
inline constexpr const char* locked = "archive_locked";       // another has it open
inline constexpr const char* not_empty = "archive_not_empty"; // of another conversation
inline constexpr const char* other = "archive_other";         // not the saved cache's
inline constexpr const char* too_short = "archive_too_short"; // ends before the saved cache
inline constexpr const char* damaged = "archive_damaged";     // a file is not as written
inline constexpr const char* unusable = "archive_unusable";   // the system refused

// Later: the archive is of no more use, and says so once.
inline constexpr const char* not_written = "archive_not_written"; // the system refused
inline constexpr const char* not_read = "archive_not_read"; // refused, or not as written
inline constexpr const char* too_slow = "archive_too_slow"; // more waits than memory allows
inline constexpr const char* forked = "archive_forked";     // used in another process

} // namespace archive_codes

/// Thrown while a folder is opened; what happens later is a value.
class ArchiveError : public std::runtime_error {
 public:
  explicit ArchiveError(ArchiveFailure failure)
      : std::runtime_error(failure.code + ": " + failure.path),
        failure(std::move(failure)) {
  }

  const ArchiveFailure failure;
};

/// errno, but 0 where the system read well and the content is wrong.
inline int unless_content(int error) {
  return error == EBADMSG ? 0 : error;
}

/// Why a folder's lock cannot be had.
[[noreturn]] inline void refuse_lock(const std::string& folder, int error) {
  if (error == EWOULDBLOCK) {
    throw ArchiveError({archive_codes::locked, folder, 0});
  }
  throw ArchiveError({archive_codes::unusable, folder, error});
}

} // namespace h2o
