// SPDX-License-Identifier: MIT OR GPL-2.0-only
// Memory that outlives the server: a process that does nothing but keep descriptors of it, starts the server
// as its child, and starts it again when it ends by accident or is to be another program. It talks only to
// that child.
#pragma once

#include <csignal>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rdma_blk/server/server.h"

namespace tiffin::rdma_blk {

// What ends a server whose memory is kept; SIGTERM ends one for good.
inline constexpr int kStopWithKeptMemory = SIGUSR1;

// Runs `worker` in a child process until it ends on purpose; returns the status to exit with. SIGTERM and SIGINT
// end both, SIGHUP goes to the child; when the keeper dies, the child gets SIGTERM. The child's first start
// may fail with a status of its own, which is returned. SIGUSR2 ends the child and starts `program` in its place,
// looked for as a shell does, with one argument more, of kKeeperSocketOption. While that does not get as far as
// server_is_ready(), `worker` takes its place. Precondition: the process has one thread.
int run_with_keeper(const std::function<int(MemoryKeeper& keeper)>& worker,
                    const std::vector<std::string>& program);

// For `program`: the number of a descriptor follows. The name stands for how the two talk: when that changes, it gets
// another one, so that a program that would not understand its keeper ends at once.
constexpr char kKeeperSocketOption[] = "--keeper-socket";
// Takes the descriptor. Null: it is nothing that a keeper has given.
std::unique_ptr<MemoryKeeper> connect_to_keeper(int descriptor);

}  // namespace tiffin::rdma_blk
