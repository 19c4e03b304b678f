//! Limits of the kernel under which the library cannot use the ledger.

use super::bench::{Bench, built, folder};

const SLICED: [&str; 2] = ["--memory=8GiB", "--name=llama"];

/// A program that loads the driver, then sets a limit, and is refused memory.
const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static void *driver;

static int use(void) {
    int (*init)(unsigned) = dlsym(driver, "cuInit");
    int (*retain)(void **, int) = dlsym(driver, "cuDevicePrimaryCtxRetain");
    void *context;
    return init(0) ? 1 : retain(&context, 0);
}

static void limit(void) {
LIMIT
}

int main(void) {
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    printf("%d\n", (int) getpid());
    limit();
    if (!driver || use() == 0) return 1;
    fflush(stdout);
    sleep(1000);
    return 0;
}
"#;

/// The limit is the cause.
fn refused(limit: &str, code: &str, what: &str) {
    let (bench, folder) = (Bench::new(), folder());
    let source = SOURCE.replace("LIMIT", limit);
    let program = built(folder.path(), "cc", &["-ldl"], &source);
    let running = bench.words(&SLICED, &[program.to_str().unwrap()]);
    let said = bench.about(&running);
    said.is_broken_by(code);
    assert!(said.text.contains(what), "{}", said.text);
    assert_eq!(said.codes().len(), 1, "{}", said.text);
}

#[test]
fn a_seccomp_filter_that_fails_fstat_is_the_cause() {
    let filter = "
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fstat, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {4, code};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);";
    refused(filter, "seccomp-filter", "runs under a seccomp filter");
}

#[test]
fn a_process_without_a_free_descriptor_is_the_cause() {
    let full = "
    struct rlimit most = {16, 16};
    setrlimit(RLIMIT_NOFILE, &most);
    while (dup(1) >= 0) {}";
    refused(full, "too-many-open-files", " of 16 files open");
}

#[test]
fn a_process_without_address_space_is_the_cause() {
    let narrow = "
    long pages;
    FILE *file = fopen(\"/proc/self/statm\", \"r\");
    if (fscanf(file, \"%ld\", &pages) != 1) pages = 0;
    fclose(file);
    struct rlimit most = {pages * 4096 + 65536, pages * 4096 + 65536};
    setrlimit(RLIMIT_AS, &most);";
    refused(narrow, "address-space-limit", "cannot map the ledger");
}
