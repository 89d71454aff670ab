// Package trust authenticates clients, and prevents others from reading or forging the
// messages of two ends. It has the keys that both ends share, the handshake in which each
// end proves that it has the key, and the seals derived from the handshake. It transfers
// no data, and imports only dirsync of this module.
//
// The handshake is Noise_NNpsk0_25519_AESGCM_SHA256 (noiseprotocol.org, revision 34): both
// ends create an ephemeral key for each handshake. So a recorded session remains
// unreadable even for somebody who later learns the shared key, and nothing of it can be
// replayed. All messages sent before the handshake are its prologue: if they were modified
// on the way, the handshake fails.
package trust
