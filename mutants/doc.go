// Command mutants breaks each guard of this repository on purpose, and sees that a test notices.
//
//	go run ./mutants [-only NAME] [-parallel N]
//
// A guard is only as good as the test that dies with it. Each *.patch in this folder breaks exactly one, and says in
// its first lines what it breaks and which tests have to fail, one line for each:
//
//	# breaks: a pod's role is compared by prefix instead of exactly
//	# dies: ./mappings TestAcceptsOnlyItsOwnRole
//
// The command copies the tree, and for each patch: applies it, runs the named tests, and takes it back. A patch is
// killed when each of its tests ran and failed. It is a fault, and the exit status is 1, when a test still passes (the
// mutant survived), when the patch does not apply or does not compile, or when the tests it names are not there, fail or
// are skipped on the whole tree. The working tree is never touched.
package main
