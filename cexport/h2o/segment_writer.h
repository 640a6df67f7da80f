#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

/// The thread that writes segments, one per process. It uses only files and plain memory,
/// never MLX, and runs while any folder is open.
namespace h2o {

class SegmentFolder;

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

  /// The thread starts with the first attached folder, and ends with the last.
  void attach();
  void detach();

  /// Queues a folder with segments to write behind the others. Call it with the lock held.
  void enqueue(SegmentFolder& folder);

  /// Waits until `folder` is neither queued nor being written. Call it with the lock held.
  void withdraw(SegmentFolder& folder, std::unique_lock<std::mutex>& lock);

 private:
  void run();

  std::thread thread_;
  std::condition_variable begin_;
  std::deque<SegmentFolder*> queue_;
  SegmentFolder* current_ = nullptr;
  int attached_ = 0;
  bool ending_ = false;
};

} // namespace h2o
