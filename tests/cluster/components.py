"""The programs of the cluster: the control plane, the container engine, the kubelet.

Touches: the machine that machine.sh has made: /etc/containerd, /etc/cni, /mnt/state, processes."""

import json
import os
import pathlib
import signal
import subprocess

import api
import images

STATE = pathlib.Path("/mnt/state")
LOGS = pathlib.Path("/mnt/logs")
BUILD = pathlib.Path("/mnt/build")
TREE = pathlib.Path("/mnt/tree")
GROUP = os.environ.get("CLUSTER_GROUP", "")
FOLDER = pathlib.Path(__file__).resolve().parent

# Version 2 of the format, which containerd 1.7 and 2 read. A root without CAP_SYS_RESOURCE may not
# lower the OOM score.
CONTAINERD = """version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  restrict_oom_score_adj = true
  enable_cdi = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/mnt/cni"
    conf_dir = "/etc/cni/net.d"
"""

NETWORK = {
    "cniVersion": "0.4.0",
    "name": "pods",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": True,
            "hairpinMode": True,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.99.2.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]},
        }
    ],
}

KUBELET = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
    "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
    "cgroupDriver": "cgroupfs",
    "cgroupRoot": f"/{GROUP}",
    # No server has this address: no pod asks for a name.
    "clusterDNS": ["10.99.1.10"],
    "enforceNodeAllocatable": [],
    "failCgroupV1": False,
    "failSwapOn": False,
    "localStorageCapacityIsolation": False,
    "makeIPTablesUtilChains": False,
    "maxOpenFiles": 20000,
    "oomScoreAdj": 0,
    "resolvConf": "",
}

# Who used which permission. The driver's account is the one that matters.
AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "users": ["system:serviceaccount:gpuslice:gpuslice"]},
        {"level": "None"},
    ],
}

TOKENS = """administrator,administrator,1,"system:masters"
scheduler,system:kube-scheduler,2
node1,system:node:node1,3,"system:nodes"
"""


def kubeconfig(user):
    """Writes the credentials of a user, and returns the path."""
    path = STATE / f"{user}.kubeconfig"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": api.SERVER, "insecure-skip-tls-verify": True}}],
        "users": [{"name": "u", "user": {"token": user}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    path.write_text(json.dumps(config))
    return str(path)


def run(*words, given=None, check=True, environment=None):
    """Runs a program and returns what it prints. A program that fails ends the step."""
    words = [str(word) for word in words]
    done = subprocess.run(
        words, input=given, capture_output=True, text=True, timeout=2 * api.PATIENCE, env=os.environ | (environment or {})
    )
    assert not check or done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"
    return done.stdout if check else done


def kubectl(*words, **options):
    return run("kubectl", "--kubeconfig", STATE / "administrator.kubeconfig", *words, **options)


class Cluster:
    """The programs that run now, by name."""

    def __init__(self, gpus):
        self.gpus = gpus
        self.programs = {}
        self.version = next(
            line.split('"')[1] for line in (TREE / "Cargo.toml").read_text().splitlines() if line.startswith("version = ")
        )

    def prepare(self):
        """Writes every file that the programs read."""
        os.umask(0o022)
        pathlib.Path("/etc/containerd/config.toml").write_text(CONTAINERD)
        pathlib.Path("/etc/cni/net.d/10-pods.conflist").write_text(json.dumps(NETWORK))
        (STATE / "kubelet.json").write_text(json.dumps(KUBELET))
        (STATE / "audit.json").write_text(json.dumps(AUDIT))
        (STATE / "tokens.csv").write_text(TOKENS)
        run("openssl", "genrsa", "-out", STATE / "accounts.key", "2048")
        for user in ["administrator", "scheduler", "node1"]:
            kubeconfig(user)
        self.images = images.write(BUILD, STATE, self.version)

    def start(self, name, *words):
        """Starts a program, with its output in the logs."""
        with open(LOGS / f"{name}.log", "a") as log:
            words = [str(word) for word in words]
            self.programs[name] = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self, name):
        program = self.programs.pop(name)
        program.send_signal(signal.SIGKILL)
        program.wait()

    def boot(self):
        """Boots the machine and starts everything. The first boot also imports the images."""
        is_first = not self.programs
        run(FOLDER / "boot.sh", self.gpus, GROUP)
        self.engine()
        if is_first:
            for image in self.images:
                run("ctr", "-n", "k8s.io", "images", "import", image)
        self.control_plane()
        self.kubelet()

    def reboot(self):
        """Kills all processes but process 1 and this one, and boots."""
        os.kill(-1, signal.SIGKILL)
        for program in self.programs.values():
            program.wait()
        self.boot()

    def engine(self):
        self.start("containerd", "containerd")
        answers = lambda: run("ctr", "version", check=False).returncode == 0
        api.wait("containerd answers", answers)

    def control_plane(self):
        self.start("etcd", "etcd", "--data-dir", STATE / "etcd", "--unsafe-no-fsync", "--log-level", "warn")
        self.start(
            "kube-apiserver",
            "kube-apiserver",
            "--etcd-servers=http://127.0.0.1:2379",
            "--secure-port=443",
            "--advertise-address=10.99.0.1",
            "--service-cluster-ip-range=10.99.1.0/24",
            "--endpoint-reconciler-type=none",
            "--allow-privileged=true",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--kubelet-preferred-address-types=InternalIP",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={STATE}/accounts.key",
            f"--service-account-signing-key-file={STATE}/accounts.key",
            f"--cert-dir={STATE}/certificates",
            f"--token-auth-file={STATE}/tokens.csv",
            f"--audit-policy-file={STATE}/audit.json",
            f"--audit-log-path={LOGS}/audit.log",
        )
        api.wait("the API server is ready", lambda: api.get("/readyz") == "ok")
        self.start(
            "kube-controller-manager",
            "kube-controller-manager",
            f"--kubeconfig={STATE}/administrator.kubeconfig",
            "--leader-elect=false",
            # Makes the account `default` and the certificate of each namespace, which pods need.
            f"--service-account-private-key-file={STATE}/accounts.key",
            f"--root-ca-file={STATE}/certificates/apiserver.crt",
        )
        self.start(
            "kube-scheduler", "kube-scheduler", f"--kubeconfig={STATE}/scheduler.kubeconfig",
            f"--authentication-kubeconfig={STATE}/scheduler.kubeconfig",
            f"--authorization-kubeconfig={STATE}/scheduler.kubeconfig", "--leader-elect=false",
        )

    def kubelet(self):
        self.start(
            "kubelet", "kubelet", f"--config={STATE}/kubelet.json", f"--kubeconfig={STATE}/node1.kubeconfig",
            "--node-ip=10.99.0.1", "--hostname-override=node1",
        )

    def simulate(self):
        """Replaces the node's GPUs by others. No program may use them."""
        run(FOLDER / "gpus.sh", self.gpus)

    def ended(self):
        """The names of programs that should run, and do not."""
        return [name for name, program in self.programs.items() if program.poll() is not None]

    def gpuslice(self, *words, check=True):
        """Runs the command that the chart has installed on the node."""
        simulated = {"GPUSLICE_SIM": self.gpus, "GPUSLICE_SIM_STATE": "/mnt/sim"}
        return run("/opt/gpuslice/bin/gpuslice", *words, check=check, environment=simulated)
