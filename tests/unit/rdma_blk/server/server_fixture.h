// SPDX-License-Identifier: MIT OR GPL-2.0-only
// A server in this process, on a port of the loopback, with one volume.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>

#include "rdma_blk/server/server.h"
#include "tests/unit/rdma_blk/server/test_client.h"

namespace tiffin::rdma_blk {

// Keeps memory while servers come and go.
class TestKeeper final : public MemoryKeeper {
  public:
    KeptMemory find(const std::string& volume_name) override {
        KeptMemory kept;
        if (keeps && kept_.count(volume_name) != 0) {
            kept.data.reset(dup(kept_[volume_name].data.get()));
            kept.control.reset(dup(kept_[volume_name].control.get()));
        }
        return kept;
    }
    Result<void> keep(const std::string& volume_name, int data, int control) override {
        kept_[volume_name].data.reset(dup(data));
        kept_[volume_name].control.reset(dup(control));
        return {};
    }
    void forget(const std::string& volume_name) override { kept_.erase(volume_name); }

    bool keeps = true;

  private:
    std::map<std::string, KeptMemory> kept_;
};

class ServerFixture : public ::testing::Test {
  protected:
    static constexpr uint64_t kVolumeBytes = 4 << 20;

    void SetUp() override {
        char folder[] = "/tmp/tiffind-test-XXXXXX";
        ASSERT_NE(mkdtemp(folder), nullptr);
        folder_ = folder;
        configuration_.listen = {{"127.0.0.1", 0}};
        configuration_.state_directory = folder_ + "/state";
        configuration_.runtime_directory = folder_ + "/run";
        configuration_.huge_pages = Wish::no;
        configuration_.lock_memory = Wish::no;
        configuration_.memory_limit_bytes = 256 << 20;
    }
    void TearDown() override {
        server_.reset();
        std::filesystem::remove_all(folder_);
    }

    void start(const std::string& backing = "") {
        server_ = std::make_unique<Server>(configuration_, keeper_);
        std::string problem;
        ASSERT_TRUE(server_->start(problem).ok()) << problem;
        if (server_->find_volume("volume") == nullptr && server_->failed_volumes().empty()) {
            auto key = server_->create_volume({"volume", kVolumeBytes, 4096, backing}, problem);
            ASSERT_TRUE(key.ok()) << problem;
            key_ = key.value();
        }
    }
    void restart() {
        server_.reset();
        start();
    }
    std::unique_ptr<TestClient> connect(unsigned char number = 1, bool encrypt = false,
                                        uint8_t version = wire::kHighestVersion) {
        auto client = std::make_unique<TestClient>(server_->port(), number);
        EXPECT_TRUE(client->connected());
        EXPECT_TRUE(client->handshake(key_, "volume", encrypt, version).ok());
        return client;
    }
    std::unique_ptr<TestClient> open(unsigned char number = 1,
                                     wire::SessionMode mode = wire::SessionMode::write,
                                     bool force = false, bool encrypt = false) {
        auto client = connect(number, encrypt);
        EXPECT_TRUE(client->open(mode, force)) << int{client->refused().reason};
        return client;
    }
    Volume& volume() { return *server_->find_volume("volume"); }
    unsigned char* memory() { return volume().memory().data; }

    std::string folder_;
    Configuration configuration_;
    TestKeeper keeper_;
    std::unique_ptr<Server> server_;
    Secret<kVolumeKeyBytes> key_;
};

}  // namespace tiffin::rdma_blk
