// Package trust admits clients, and keeps others from reading or forging the messages of
// two ends. It has the keys that both ends share, the handshake in which each end proves
// that it has the key, and the seals that follow from the handshake. It moves no bytes,
// and of this module imports only dirsync.
//
// The handshake is Noise_NNpsk0_25519_AESGCM_SHA256 (noiseprotocol.org, revision
// 34): both ends make an ephemeral key for each handshake. So a recorded session stays
// unreadable for somebody who learns the shared key later, and nothing of it can be replayed.
// All that the ends said before the handshake is its prologue: if that was changed on the
// way, the handshake fails.
package trust
