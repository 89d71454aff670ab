// Package packaging tests what comes with the program: the systemd unit, how it
// is installed, and the check for known vulnerabilities.
package packaging
