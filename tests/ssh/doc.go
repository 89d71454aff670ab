// Package ssh tests the built program with a real sshd on loopback, with keys
// and configuration files made for the test: far ends that are started, that
// cannot be, and that go away. It needs openssh-client and openssh-server.
package ssh
