// Package ssh tests the built program with a real sshd on loopback, with keys and
// configuration files made for the test: remote processes that start, that cannot
// start, and that end. It needs openssh-client and openssh-server.
package ssh
