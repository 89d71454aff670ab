package ssh

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"gdrcp/rdma/rdmatest"
	"gdrcp/tests/launch"
)

// binary is the program under test, alone in its directory, and keys the directory with
// the keys. TestMain makes them.
var binary, keys string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	if why := missing(); why != "" {
		if os.Getenv("CI") != "" {
			fmt.Fprintln(os.Stderr, why)
			return 1
		}
		fmt.Fprintf(os.Stderr, "tests/ssh: left out: %s\n", why)
		return 0
	}
	dir, err := os.MkdirTemp("", "gdrcp-ssh-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = prepare(dir)
	}
	if err == nil {
		err = rdmatest.AtOnce(8)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// missing returns what the tests need and this machine lacks.
func missing() string {
	for _, tool := range []string{"ssh", "ssh-keygen", sshd} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Sprintf("%v: apt install openssh-client openssh-server", err)
		}
	}
	return ""
}

// noteSources reads the module's files, so that go test notices that the result depends
// on the program, which the tests do not import.
func noteSources() error {
	return filepath.WalkDir("../..", func(path string, d os.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".go" {
			_, err = os.Stat(path)
		}
		return err
	})
}

// prepare builds the program and generates the keys.
func prepare(dir string) error {
	if err := noteSources(); err != nil {
		return err
	}
	binary, keys = filepath.Join(dir, "bin", "gdrcp"), filepath.Join(dir, "keys")
	for _, d := range []string{filepath.Dir(binary), keys} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return err
		}
	}
	if os.Getuid() == 0 { // sshd needs it, and it is missing on a machine without the service
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
			return err
		}
	}
	if program, err := launch.Program(filepath.Dir(binary)); err != nil {
		return err
	} else if program != binary {
		if err := exec.Command("cp", program, binary).Run(); err != nil {
			return fmt.Errorf("copy GDRCP_BINARY: %w", err)
		}
	}
	for _, key := range []string{"host", "user", "stranger"} {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(keys, key)).CombinedOutput(); err != nil {
			return fmt.Errorf("make a key: %w\n%s", err, out)
		}
	}
	return nil
}
