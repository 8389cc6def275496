// Package handover passes a daemon's open sockets to the process that takes its place.
//
// The process that serves opens a [Door]: a unix socket in a directory that only its own user can enter. A newly started
// one finds the door with [Find], makes itself ready while the first one goes on serving, and then asks:
//
//	newcomer                          the one that serves
//	hello                      ->
//	                           <-     welcome
//	(gets ready, for as long as it takes)
//	take                       ->
//	                                  stops what two must not do at once (Pause)
//	                           <-     sockets, with the file descriptors and the key
//	(accepts connections, too)
//	serving                    ->
//	                                  accepts no more connections (Release)
//	                           <-     released
//	(the connection stays open)
//
// Until it has received "serving" the first one accepts connections, and both share one queue of the kernel's, so that
// none is refused or lost. Whatever goes wrong before that, be it a time-out, a newcomer that ends or one that speaks
// another version, leaves the first one as it was (Resume). Afterwards too: as long as it has not ended itself it still
// has the sockets, and goes on as before when the newcomer's connection breaks. A newcomer that has handed on says so
// first ("gone").
//
// The package refuses a directory that others may write to, peers of another user, what is no listening TCP socket, and
// more than it asked for. It knows nothing of what is served, and imports nothing else of the module. Linux only.
package handover
