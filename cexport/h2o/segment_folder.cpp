#include "segment_folder.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#ifdef __APPLE__
#include <pthread/qos.h>
#endif
#ifdef __linux__
#include <sys/resource.h>
#include <sys/syscall.h>
#endif

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <system_error>
#include <thread>
#include <utility>

namespace h2o {

/// The thread that writes segments, one per process. It uses only files and plain memory,
/// never MLX.
class SegmentWriter {
 public:
  /// The writer of this process; a forked child has its own.
  static SegmentWriter& shared();

  /// Guards the writer and the data that folders share with it.
  std::mutex mutex;

  /// Notified after each write; wait for it with `mutex`.
  std::condition_variable progress;

  /// Bytes that wait in memory, all folders together.
  int64_t waiting = 0;

  /// Starts the thread, unless it runs. Throws std::system_error.
  void start();

  /// Queues a folder with segments to write behind the others. Call it with the lock held.
  void enqueue(SegmentFolder& folder);

  /// Waits until `folder` is neither queued nor being written. Call it with the lock held.
  void withdraw(SegmentFolder& folder, std::unique_lock<std::mutex>& lock);

 private:
  void run();

  std::condition_variable begin_;
  std::deque<SegmentFolder*> queue_;
  SegmentFolder* current_ = nullptr;
  bool is_running_ = false;
};

namespace {

/// Lowers the thread's priority in favor of generation.
void lower_priority() {
#if defined(__APPLE__)
  pthread_set_qos_class_self_np(QOS_CLASS_UTILITY, 0);
#elif defined(__linux__)
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), 10);
#endif
}

/// Blocks signals, which are for the program's own threads. A file over the size limit
/// then gives an error instead of a signal.
void block_signals() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

} // namespace

SegmentWriter& SegmentWriter::shared() {
  // Never destroyed, because at exit its thread still runs, and after a fork its mutex may
  // be locked.
  static auto* writer = new SegmentWriter;
  [[maybe_unused]] static const int in_child =
      pthread_atfork(nullptr, nullptr, [] { writer = new SegmentWriter; });
  return *writer;
}

void SegmentWriter::start() {
  std::scoped_lock lock(mutex);
  if (!is_running_) {
    std::thread([this] { run(); }).detach();
    is_running_ = true;
  }
}

void SegmentWriter::enqueue(SegmentFolder& folder) {
  if (std::find(queue_.begin(), queue_.end(), &folder) == queue_.end()) {
    queue_.push_back(&folder);
    begin_.notify_one();
  }
}

void SegmentWriter::withdraw(SegmentFolder& folder, std::unique_lock<std::mutex>& lock) {
  std::erase(queue_, &folder);
  progress.wait(lock, [&] { return current_ != &folder; });
  std::erase(queue_, &folder);
}

void SegmentWriter::run() {
  block_signals();
  lower_priority();
  std::unique_lock lock(mutex);
  while (true) {
    begin_.wait(lock, [this] { return !queue_.empty(); });
    current_ = queue_.front();
    queue_.pop_front();
    const bool more = current_->write_one(lock);
    if (more) {
      enqueue(*current_);
    }
    current_ = nullptr;
    progress.notify_all();
  }
}

SegmentFolder::~SegmentFolder() {
  if (process_ != ::getpid()) {
    return; // the writer of a forked child's parent does not run in the child
  }
  Lock lock(writer_.mutex);
  writer_.withdraw(*this, lock);
  forget_waiting();
}

std::vector<int64_t> SegmentFolder::serials() const {
  std::vector<int64_t> all;
  Lock lock(writer_.mutex);
  for (const auto& [serial, segment] : segments_) {
    all.push_back(serial);
  }
  return all;
}

bool SegmentFolder::holds(const std::string& format, const SegmentShape& shape) const {
  Lock lock(writer_.mutex);
  return manifest_.format.empty() ||
         (manifest_.format == format && manifest_.shape == shape);
}

int64_t SegmentFolder::append(
    const std::string& format,
    const SegmentShape& shape,
    const char* rows,
    std::shared_ptr<void> keeper,
    bool may_wait) {
  std::vector<std::shared_ptr<void>> released; // released after the lock
  Lock lock(writer_.mutex);
  if (manifest_.format.empty()) {
    manifest_.format = format;
    manifest_.shape = shape;
  } else if (manifest_.format != format || manifest_.shape != shape) {
    return -1;
  }
  released.swap(released_);
  if (may_wait) {
    writer_.progress.wait(lock, [&] {
      return failure_ || writer_.waiting == 0 ||
             writer_.waiting + shape.bytes() <= most_waiting;
    });
  } else if (writer_.waiting > 0 && writer_.waiting + shape.bytes() > 2 * most_waiting) {
    fail(archive_codes::too_slow, path_, 0);
  }
  if (failure_) {
    return -1;
  }
  segments_[next_serial_] = {std::nullopt, rows, std::move(keeper)};
  writer_.waiting += shape.bytes();
  writer_.enqueue(*this);
  return next_serial_++;
}

std::shared_ptr<const StoredSegment> SegmentFolder::opened(int64_t serial) {
  Lock lock(writer_.mutex);
  auto entry = segments_.find(serial);
  if (failure_ || entry == segments_.end()) {
    return nullptr;
  }
  Segment& segment = entry->second;
  if (segment.opened) {
    return segment.opened;
  }
  if (!segment.digest) {
    return std::make_shared<StoredSegment>(manifest_.shape, segment.rows, segment.keeper);
  }
  const Digest digest = *segment.digest;
  const SegmentKind kind = manifest_;
  lock.unlock();
  std::shared_ptr<const StoredSegment> opened;
  const int error = open_segment(path_of(serial), kind, serial, digest, opened);
  lock.lock();
  if (error != 0) {
    fail(archive_codes::not_read, path_of(serial), unless_content(error));
    return nullptr;
  }
  if (entry = segments_.find(serial); entry != segments_.end()) {
    entry->second.opened = opened;
  }
  return opened;
}

void SegmentFolder::fail_reading(int64_t serial) {
  posix::File file;
  const int error = posix::open_to_read(path_of(serial), file);
  Lock lock(writer_.mutex);
  fail(archive_codes::not_read, path_of(serial), error);
}

void SegmentFolder::drop_oldest() {
  Lock lock(writer_.mutex);
  to_drop_ += 1;
  drop_written();
}

/// Drops up to `to_drop_` of the oldest segments, but none that is not written yet, because
/// it has no digest for the chain.
void SegmentFolder::drop_written() {
  while (to_drop_ > 0 && !segments_.empty() && segments_.begin()->second.digest) {
    manifest_.chain = chained(manifest_.chain, *segments_.begin()->second.digest);
    manifest_.dropped += 1;
    drop(segments_.begin());
    to_drop_ -= 1;
  }
}

void SegmentFolder::drop_newest() {
  Lock lock(writer_.mutex);
  if (!segments_.empty()) {
    drop(std::prev(segments_.end()));
  }
}

void SegmentFolder::drop(std::map<int64_t, Segment>::iterator segment) {
  if (segment->second.digest) {
    doomed_.push_back(segment->first);
    manifest_is_stale_ = true;
    writer_.enqueue(*this);
  } else {
    writer_.waiting -= manifest_.shape.bytes();
    released_.push_back(std::move(segment->second.keeper));
  }
  segments_.erase(segment);
}

bool SegmentFolder::flush() {
  Lock lock(writer_.mutex);
  writer_.progress.wait(lock, [&] {
    const bool all_written =
        segments_.empty() || std::prev(segments_.end())->second.digest.has_value();
    return failure_ || (all_written && !manifest_is_stale_);
  });
  return !failure_;
}

bool SegmentFolder::is_written(int64_t serial) {
  std::vector<std::shared_ptr<void>> released; // released after the lock
  Lock lock(writer_.mutex);
  released.swap(released_);
  auto entry = segments_.find(serial);
  return entry != segments_.end() && entry->second.digest;
}

std::optional<ArchiveMark> SegmentFolder::mark(int64_t newest) const {
  Lock lock(writer_.mutex);
  auto last = segments_.find(newest);
  if (newest >= 0 && (last == segments_.end() || !last->second.digest)) {
    return std::nullopt;
  }
  Digest chain = manifest_.chain;
  int64_t count = manifest_.dropped;
  for (const auto& [serial, segment] : segments_) {
    if (serial <= newest) {
      chain = chained(chain, *segment.digest);
      count += 1;
    }
  }
  return ArchiveMark{manifest_.session, count, to_hex(chain)};
}

std::optional<ArchiveFailure> SegmentFolder::failure() const {
  Lock lock(writer_.mutex);
  return failure_;
}

bool SegmentFolder::write_one(Lock& lock) {
  std::optional<SegmentEntry> fresh;
  Digest digest;
  auto oldest = std::find_if(segments_.begin(), segments_.end(), [](const auto& entry) {
    return !entry.second.digest;
  });
  if (!failure_ && oldest != segments_.end()) {
    const int64_t serial = oldest->first;
    Segment segment = oldest->second; // a copy, because the owner may drop the segment
    if (write_segment_file(serial, segment, digest, lock)) {
      fresh = {serial, digest};
    }
    released_.push_back(std::move(segment.keeper));
  }
  if (failure_ || (!fresh && !manifest_is_stale_) || !write_manifest(fresh, lock)) {
    return false;
  }
  if (auto written = fresh ? segments_.find(fresh->serial) : segments_.end();
      written != segments_.end()) {
    released_.push_back(std::move(written->second.keeper));
    written->second = {digest};
    writer_.waiting -= manifest_.shape.bytes();
    drop_written();
  } else if (fresh) {
    doomed_.push_back(fresh->serial);
    manifest_is_stale_ = true;
  }
  return manifest_is_stale_ ||
         (!segments_.empty() && !std::prev(segments_.end())->second.digest);
}

bool SegmentFolder::write_segment_file(
    int64_t serial, const Segment& segment, Digest& digest, Lock& lock) {
  const SegmentKind kind = manifest_;
  lock.unlock();
  const int error = write_segment(path_of(serial), kind, serial, segment.rows, digest);
  lock.lock();
  if (error != 0) {
    fail(archive_codes::not_written, path_of(serial), error);
  }
  return error == 0;
}

bool SegmentFolder::write_manifest(const std::optional<SegmentEntry>& fresh, Lock& lock) {
  SegmentManifest manifest = manifest_;
  manifest.segments.clear();
  for (const auto& [serial, segment] : segments_) {
    if (segment.digest) {
      manifest.segments.push_back({serial, *segment.digest});
    }
  }
  if (fresh) {
    manifest.segments.push_back(*fresh);
  }
  const std::vector<int64_t> doomed = std::exchange(doomed_, {});
  manifest_is_stale_ = false;
  lock.unlock();
  const std::string text = text_of(manifest);
  const std::string path = path_ + "/manifest";
  const int error = posix::write_whole(path, {text});
  if (error == 0) {
    for (int64_t serial : doomed) {
      posix::remove_file(path_of(serial));
    }
  }
  lock.lock();
  if (error != 0) {
    fail(archive_codes::not_written, path, error);
  }
  return error == 0;
}

void SegmentFolder::forget_waiting() {
  for (auto& [serial, segment] : segments_) {
    if (!segment.digest) {
      writer_.waiting -= manifest_.shape.bytes();
      released_.push_back(std::move(segment.keeper));
    }
  }
}

void SegmentFolder::fail(const char* code, const std::string& path, int error) {
  if (!failure_) {
    failure_ = ArchiveFailure{code, path, error};
    forget_waiting();
    segments_.clear();
    writer_.progress.notify_all();
  }
}

namespace {

constexpr size_t most_manifest_bytes = size_t(64) << 20;

std::string parent_of(const std::string& path) {
  size_t slash = path.find_last_of('/');
  return slash == std::string::npos || slash == 0 ? "" : path.substr(0, slash);
}

int make_folders(const std::string& path) {
  const std::string parent = parent_of(path);
  int error = parent.empty() ? 0 : posix::make_folder(parent);
  error = error != 0 ? error : posix::make_folder(path);
  return error != 0 ? error : posix::check_own_folder(path);
}

[[noreturn]] void refuse_folder(const char* code, const std::string& path, int error = 0) {
  throw ArchiveError({code, path, error});
}

} // namespace

SegmentFolder::SegmentFolder(std::string path, const std::optional<ArchiveMark>& mark)
    : path_(std::move(path)), process_(::getpid()), writer_(SegmentWriter::shared()) {
  if (int error = make_folders(path_); error != 0) {
    refuse_folder(archive_codes::unusable, path_, error);
  }
  if (int error = posix::lock(path_ + "/lock", lock_file_); error != 0) {
    const bool is_locked = error == EWOULDBLOCK;
    refuse_folder(
        is_locked ? archive_codes::locked : archive_codes::unusable, path_,
        is_locked ? 0 : error);
  }
  if (mark && !is_session(mark->session)) {
    refuse_folder(archive_codes::other, path_);
  }
  std::string text;
  const std::string manifest = path_ + "/manifest";
  const int error = posix::read_text(manifest, most_manifest_bytes, text);
  if (error != 0 && error != ENOENT) {
    refuse_folder(archive_codes::unusable, manifest, error);
  }
  if (error == 0 && !mark) {
    refuse_folder(archive_codes::not_empty, path_);
  }
  if (error == 0) {
    restore(text, *mark);
    remove_leftovers();
  } else if (mark && mark->count > 0) {
    refuse_folder(archive_codes::too_short, path_);
  } else {
    manifest_.session = mark ? mark->session : random_session();
    pass_by_files();
  }
  try {
    writer_.start();
  } catch (const std::system_error& no_thread) {
    refuse_folder(archive_codes::unusable, path_, no_thread.code().value());
  }
}

void SegmentFolder::restore(const std::string& text, const ArchiveMark& mark) {
  if (!parse_manifest(text, manifest_)) {
    refuse_folder(archive_codes::damaged, path_ + "/manifest");
  }
  if (manifest_.session != mark.session) {
    refuse_folder(archive_codes::other, path_);
  }
  const auto listed = static_cast<int64_t>(manifest_.segments.size());
  const int64_t count = mark.count - manifest_.dropped;
  if (count < 0 || count > listed) {
    refuse_folder(archive_codes::too_short, path_);
  }
  if (to_hex(manifest_.chain_at(static_cast<size_t>(count))) != mark.chain) {
    refuse_folder(archive_codes::other, path_);
  }
  check_segments(static_cast<size_t>(count));
  // Segments newer than the mark stay until others replace them.
  for (int64_t i = count; i < listed; i++) {
    doomed_.push_back(manifest_.segments[static_cast<size_t>(i)].serial);
  }
  next_serial_ = listed > 0 ? manifest_.segments.back().serial + 1 : 0;
}

void SegmentFolder::check_segments(size_t count) {
  for (size_t i = 0; i < count; i++) {
    const auto& [serial, digest] = manifest_.segments[i];
    Segment segment{digest};
    const int error =
        open_segment(path_of(serial), manifest_, serial, digest, segment.opened);
    if (error != 0) {
      refuse_folder(archive_codes::damaged, path_of(serial), unless_content(error));
    }
    segments_[serial] = std::move(segment);
  }
}

/// Without a manifest no file in the folder is known to belong to the archive. Files with
/// names of segments stay, and new segments get later names.
void SegmentFolder::pass_by_files() {
  std::vector<std::string> names;
  if (int error = posix::names_in(path_, names); error != 0) {
    refuse_folder(archive_codes::unusable, path_, error);
  }
  for (const std::string& name : names) {
    next_serial_ = std::max(next_serial_, serial_of(name) + 1);
  }
  if (next_serial_ >= most_segments) {
    refuse_folder(archive_codes::not_empty, path_);
  }
}

/// Removes files that a crash left: incomplete ones, and segments that no manifest lists.
void SegmentFolder::remove_leftovers() {
  std::vector<std::string> names;
  if (int error = posix::names_in(path_, names); error != 0) {
    refuse_folder(archive_codes::unusable, path_, error);
  }
  for (const std::string& name : names) {
    const int64_t serial = serial_of(name);
    const bool temporary =
        name.size() > 4 && name.ends_with(".new") &&
        (name == "manifest.new" || serial_of(name.substr(0, name.size() - 4)) >= 0);
    const bool unlisted =
        serial >= 0 && !segments_.contains(serial) &&
        std::find(doomed_.begin(), doomed_.end(), serial) == doomed_.end();
    if (temporary || unlisted) {
      posix::remove_file(path_ + "/" + name);
    }
  }
}

} // namespace h2o
