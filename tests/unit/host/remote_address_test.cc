// SPDX-License-Identifier: MIT OR GPL-2.0-only
#include "fuse/host/remote_address.h"

#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

#include "fuse/host/device_address.h"
#include "fuse/host/volume_key.h"
#include "tests/support/device_testing.h"

namespace tiffin::fuse {
namespace {

std::string problem_with(std::string_view text) {
    auto address = parse_remote_address(text);
    return address.ok() ? "" : address.problem().text;
}

void expect_problem(std::string_view text, const char* expected) {
    EXPECT_NE(problem_with(text).find(expected), std::string::npos)
        << text << ": " << problem_with(text);
}

TEST(RemoteAddress, UnderstandsOneServer) {
    auto address = parse_remote_address("//host7/volume.1");
    ASSERT_TRUE(address.ok()) << address.problem().text;
    ASSERT_EQ(address->servers.size(), 1U);
    EXPECT_EQ(address->servers[0].host, "host7");
    EXPECT_EQ(address->servers[0].port, rdma_blk::wire::kDefaultPort);
    EXPECT_EQ(address->servers[0].transport, rdma_blk::TransportChoice::automatic);
    EXPECT_EQ(address->volume, "volume.1");
    EXPECT_EQ(address->timeout_s, kDefaultRemoteTimeoutSeconds);
    EXPECT_EQ(address->stripe_bytes, 0U);
    EXPECT_FALSE(address->encrypt);
}

TEST(RemoteAddress, UnderstandsSeveralLinksToAServer) {
    auto address = parse_remote_address("//a+b:5000,[::1]+[::2]:1+d/v?transport=tcp");
    ASSERT_TRUE(address.ok()) << address.problem().text;
    ASSERT_EQ(address->servers.size(), 2U);
    EXPECT_EQ(address->servers[0].host, "a");
    ASSERT_EQ(address->servers[0].more_links.size(), 1U);
    EXPECT_EQ(address->servers[0].more_links[0].host, "b");
    EXPECT_EQ(address->servers[0].more_links[0].port, 5000);
    ASSERT_EQ(address->servers[1].more_links.size(), 2U);
    EXPECT_EQ(address->servers[1].more_links[0].host, "::2");
    EXPECT_EQ(address->servers[1].more_links[1].port, rdma_blk::wire::kDefaultPort);
    EXPECT_EQ(address->servers[0].link_policy, rdma_blk::LinkPolicy::standby);
    EXPECT_TRUE(parse_remote_address("//a+b/v").ok());
    auto spread = parse_remote_address("//a+b,c+d/v?links=spread");
    ASSERT_TRUE(spread.ok()) << spread.problem().text;
    EXPECT_EQ(spread->servers[0].link_policy, rdma_blk::LinkPolicy::spread);
    EXPECT_EQ(spread->servers[1].link_policy, rdma_blk::LinkPolicy::spread);
}

TEST(RemoteAddress, NamesATransportForEachLink) {
    using rdma_blk::TransportChoice;
    auto address = parse_remote_address("//a+b+c,d+e+f/v?transport=sdr+tcp+sdr");
    ASSERT_TRUE(address.ok()) << address.problem().text;
    for (const rdma_blk::RemoteAddress& server : address->servers) {
        EXPECT_EQ(server.transport_of(0), TransportChoice::sdr);
        EXPECT_EQ(server.transport_of(1), TransportChoice::tcp);
        EXPECT_EQ(server.transport_of(2), TransportChoice::sdr);
    }
    auto same = parse_remote_address("//a+b/v?transport=rc");
    ASSERT_TRUE(same.ok());
    EXPECT_EQ(same->servers[0].transport_of(1), TransportChoice::rc);
    expect_problem("//a+b/v?transport=sdr+tcp+tcp", "name one for all, or one for each");
    expect_problem("//a/v?transport=sdr+tcp", "has 1 link: name one for all");
    expect_problem("//a+b,c/v?transport=sdr+tcp", "address of c:4847 has 1 link");
    expect_problem("//a+b/v?transport=sdr+", "transport= is unknown");
    expect_problem("//a+b/v?transport=rc+tcp", "tcp and sdr go together");
    expect_problem("//a+b/v?transport=auto+sdr", "auto chooses for all links");
    expect_problem("//a+b/v?transport=sdr+auto", "auto chooses for all links");
    expect_problem("//a+b/v?transport=tcp+sdr&sdr_carrier=uc", "tcp and sdr go together");
}

TEST(RemoteAddress, SaysWhatCarriesSdr) {
    auto plain = parse_remote_address("//host7/v?transport=sdr");
    ASSERT_TRUE(plain.ok());
    EXPECT_EQ(plain->servers[0].sdr.carrier, rdma_blk::SdrCarrier::udp);
    auto address = parse_remote_address("//a,b/v?transport=sdr&sdr_carrier=uc");
    ASSERT_TRUE(address.ok());
    EXPECT_EQ(address->servers[0].sdr.carrier, rdma_blk::SdrCarrier::uc);
    EXPECT_EQ(address->servers[1].sdr.carrier, rdma_blk::SdrCarrier::uc);
}

TEST(RemoteAddress, SaysHowSdrRepairs) {
    auto plain = parse_remote_address("//a/v?sdr_scheme=xor");
    ASSERT_TRUE(plain.ok());
    EXPECT_EQ(plain->servers[0].sdr.scheme, rdma_blk::SdrScheme::erasure_xor);
    EXPECT_EQ(plain->servers[0].sdr.data_chunks, 32);
    EXPECT_EQ(plain->servers[0].sdr.parity_chunks, 8);
    auto code = parse_remote_address("//a,b/v?sdr_scheme=mds:64:16");
    ASSERT_TRUE(code.ok());
    for (const rdma_blk::RemoteAddress& server : code->servers) {
        EXPECT_EQ(server.sdr.scheme, rdma_blk::SdrScheme::erasure_mds);
        EXPECT_EQ(server.sdr.data_chunks, 64);
        EXPECT_EQ(server.sdr.parity_chunks, 16);
    }
    for (const char* bad : {"rs", "mds:", "mds:8", "mds:8:", "mds:8:x", "mds:8:2:", "mds:65:8",
                            "mds:8:9", "mds:64:17", "mds:0:0", "mds:8:0", "mds:-8:2", "mds: 8:2",
                            "mds:99999999999:8", "nack:32:8", "auto:"}) {
        const auto address = parse_remote_address(std::string("//a/v?sdr_scheme=") + bad);
        ASSERT_FALSE(address.ok()) << bad;
        EXPECT_NE(address.problem().text.find("such as mds:32:8"), std::string::npos) << bad;
    }
}

TEST(RemoteAddress, UnderstandsEverything) {
    auto address = parse_remote_address(
        "//a:1,10.0.0.2,[fe80::1]:65535,[::1]/v?transport=tcp&runtime_directory=/"
        "r&stripe=64K&key_file=/k&timeout_s=0&"
        "busy_poll_us=1000&encrypt=yes");
    ASSERT_TRUE(address.ok()) << address.problem().text;
    ASSERT_EQ(address->servers.size(), 4U);
    EXPECT_EQ(address->servers[0].port, 1);
    EXPECT_EQ(address->servers[1].host, "10.0.0.2");
    EXPECT_EQ(address->servers[2].host, "fe80::1");
    EXPECT_EQ(address->servers[2].port, 65535);
    EXPECT_EQ(address->servers[3].host, "::1");
    EXPECT_EQ(address->servers[3].transport, rdma_blk::TransportChoice::tcp);
    EXPECT_EQ(address->servers[3].runtime_directory, "/r");
    EXPECT_EQ(address->stripe_bytes, 65536U);
    EXPECT_EQ(address->key_file, "/k");
    EXPECT_EQ(address->timeout_s, 0U);
    EXPECT_EQ(address->busy_poll_us, 1000U);
    EXPECT_TRUE(address->encrypt);
    EXPECT_EQ(server_name(address->servers[0]), "a:1");
    EXPECT_EQ(server_name(address->servers[2]), "[fe80::1]:65535");
}

TEST(RemoteAddress, SaysWhatIsWrong) {
    expect_problem("//host/volume?busy_poll_us=1001", "is not a number of microseconds up to 1000");
    expect_problem("//host/volume?busy_poll_us=1001", "is not a number of microseconds up to 1000");
    expect_problem("host/volume", "begins with tiffin://");
    expect_problem("//host", "name of the volume is missing");
    expect_problem("//host/", "name of the volume is missing");
    expect_problem("//host/a/b", "is not the name of a volume");
    expect_problem("//host/..", "is not the name of a volume");
    expect_problem("//host/" + std::string(64, 'a'), "is not the name of a volume");
    expect_problem("///volume", "name of a host is missing");
    expect_problem("//a,,b/volume", "name of a host is missing");
    expect_problem("//a b/volume", "is not the name of a host");
    expect_problem("//" + std::string(254, 'a') + "/volume", "missing or too long");
    expect_problem("//host:/volume", "is not a port");
    expect_problem("//host:0/volume", "is not a port");
    expect_problem("//host:65536/volume", "is not a port");
    expect_problem("//host:4x/volume", "is not a port");
    expect_problem("//::1/volume", "write an IPv6 address in brackets");
    expect_problem("//[::1/volume", "write an IPv6 address in brackets");
    expect_problem("//[host]/volume", "write an IPv6 address in brackets");
    expect_problem("//[::1]4847/volume", "is not HOST or HOST:PORT");
    expect_problem("//a:1,a:1/volume", "a:1 is named twice");
    expect_problem("//a:1+a:1/volume", "a:1 is named twice");
    expect_problem("//a+b,b/volume", "b:4847 is named twice");
    expect_problem("//a+/volume", "name of a host is missing");
    expect_problem("//a+b+c+d+e+f+g+h+i/volume", "at most 8 links");
    expect_problem("//a+b/volume?transport=shm", "need transport=tcp");
    expect_problem("//a+b/volume?transport=sdr&sdr_carrier=uc", "or sdr over UDP");
    expect_problem("//a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q/volume", "at most 16 servers");
    expect_problem("//host/volume?transport=pigeon", "auto, tcp, shm, rc or sdr");
    expect_problem("//host/volume?transport=sdr&sdr_carrier=ib", "udp or uc");
    expect_problem("//host/volume?stripe=64K", "stripe= is for several servers");
    expect_problem("//a,b/volume?stripe=5000", "a power of two from 4K to 1G");
    expect_problem("//a,b/volume?stripe=2G", "a power of two from 4K to 1G");
    expect_problem("//a,b/volume?stripe=x", "is not a size");
    expect_problem("//host/volume?key_file=k", "wants an absolute path");
    expect_problem("//host/volume?timeout_s=-1", "is not a number of seconds");
    expect_problem("//host/volume?timeout_s=1000001", "is not a number of seconds");
    expect_problem("//host/volume?links=both", "standby or spread");
    expect_problem("//a+b/volume?links=spread&transport=rc", "one link at a time");
    expect_problem("//host/volume?encrypt=maybe", "yes or no");
    expect_problem("//host/volume?encrypt=yes&encrypt=no", "contradict each other");
    expect_problem("//host/volume?encrypt=no&transport=tcp&encrypt=yes", "contradict each other");
    expect_problem("//host/volume?timeout_s", "wants a value");
    expect_problem("//host/volume?timeout_s=", "wants a value");
    expect_problem("//host/volume?color=red", "is not an option of a remote volume");
}

TEST(RemoteAddress, IsADeviceAddress) {
    auto address = parse_device_address("tiffin://host/volume?timeout_s=5");
    ASSERT_TRUE(address.ok()) << address.problem().text;
    EXPECT_EQ(address->kind, DeviceAddress::Kind::remote);
    EXPECT_EQ(address->remote.timeout_s, 5U);
}

class VolumeKeys : public testing::Test {
  protected:
    void SetUp() override {
        const char* before = getenv("XDG_CONFIG_HOME");
        before_ = before == nullptr ? "" : before;
        had_one_ = before != nullptr;
        setenv("XDG_CONFIG_HOME", folder_.file("").c_str(), 1);
    }
    void TearDown() override {
        if (had_one_) {
            setenv("XDG_CONFIG_HOME", before_.c_str(), 1);
        } else {
            unsetenv("XDG_CONFIG_HOME");
        }
    }

    std::string write(const std::string& name, const std::string& text, mode_t mode = 0600) {
        const std::string path = folder_.file(name);
        std::ofstream(path) << text;
        EXPECT_EQ(chmod(path.c_str(), mode), 0);
        return path;
    }
    std::string problem_of(const std::string& path) {
        auto key = read_volume_keys("volume", path, 1);
        return key.ok() ? "" : key.problem().text;
    }

    TemporaryFolder folder_;
    std::string before_;
    bool had_one_ = false;
};

TEST_F(VolumeKeys, AreReadFromTheirPlaces) {
    std::string text;
    for (int i = 0; i < 32; ++i) {
        char digits[3];
        snprintf(digits, sizeof digits, i % 2 == 0 ? "%02x" : "%02X", i * 8);
        text += digits;
    }
    auto missing = read_volume_keys("volume", "", 1);
    ASSERT_FALSE(missing.ok());
    EXPECT_NE(
        missing.problem().text.find("/tiffin/keys/volume.key and /etc/tiffin/keys/volume.key"),
        std::string::npos)
        << missing.problem().text;
    std::filesystem::create_directories(folder_.file("tiffin/keys"));
    write("tiffin/keys/volume.key", text + "\n");
    for (const std::string& path : {std::string(), write("other", text)}) {
        auto key = read_volume_keys("volume", path, 2);
        ASSERT_TRUE(key.ok()) << key.problem().text;
        for (int i = 0; i < 32; ++i) {
            EXPECT_EQ((*key)[0].bytes[i], i * 8);
            EXPECT_EQ((*key)[1].bytes[i], i * 8) << "one line is good for all servers";
        }
    }
}

TEST_F(VolumeKeys, HaveALineForEachServer) {
    const std::string a(64, 'a');
    const std::string b(64, 'b');
    const std::string path = write("two", a + "\n" + b + "\n");
    auto keys = read_volume_keys("volume", path, 2);
    ASSERT_TRUE(keys.ok()) << keys.problem().text;
    EXPECT_EQ((*keys)[0].bytes[31], 0xaa);
    EXPECT_EQ((*keys)[1].bytes[0], 0xbb);
    auto three = read_volume_keys("volume", path, 3);
    ASSERT_FALSE(three.ok());
    EXPECT_NE(three.problem().text.find("holds 2 keys for 3 servers"), std::string::npos);
    std::string many;
    for (int i = 0; i < 17; ++i) {
        many += a + "\n";
    }
    EXPECT_FALSE(read_volume_keys("volume", write("many", many), 16).ok());
    EXPECT_TRUE(read_volume_keys("volume", write("most", many.substr(65)), 16).ok());
}

TEST_F(VolumeKeys, AreRefused) {
    const std::string text(64, 'a');
    for (const mode_t mode : {0604, 0602, 0620, 0601}) {
        EXPECT_NE(problem_of(write("open", text, mode)).find("is open to others"),
                  std::string::npos);
    }
    EXPECT_EQ(problem_of(write("group", text, 0640)), "");
    for (const std::string& wrong : {text.substr(1), text + "a", text + "\n\n", text + " ",
                                     std::string(64, 'g'), std::string()}) {
        EXPECT_NE(problem_of(write("wrong", wrong)).find("does not hold a key"), std::string::npos);
    }
    const std::string digits(64, 'c');
    auto readers = read_volume_keys("volume", write("readers", "reader:" + digits + "\n"), 2);
    ASSERT_TRUE(readers.ok()) << readers.problem().text;
    EXPECT_TRUE((*readers)[0].is_reader && (*readers)[1].is_reader);
    EXPECT_EQ((*readers)[1].bytes[0], 0xcc);
    for (const std::string& mixed :
         {"reader:" + digits + "\n" + digits, digits + "\nreader:" + digits}) {
        EXPECT_NE(problem_of(write("rights", mixed)).find("keys of different rights"),
                  std::string::npos);
    }
    EXPECT_TRUE(read_volume_keys("volume", write("crlf", digits + "\r\n"), 1).ok());
    for (const std::string& mixed : {"reader:\n" + digits, "reader:" + digits + digits,
                                     "writer:" + digits, std::string("reader:")}) {
        EXPECT_NE(problem_of(write("mixed", mixed)).find("does not hold a key"), std::string::npos);
    }
    EXPECT_NE(problem_of(folder_.file("none")).find("there is no key"), std::string::npos);
    EXPECT_NE(problem_of(folder_.file("")).find("is not a file"), std::string::npos);
}

}  // namespace
}  // namespace tiffin::fuse
