# Uses git: a repository, commits, a branch, a merge, and a clone over the local transport.
set -eu
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.com GIT_AUTHOR_DATE='2026-01-01T00:00:00Z'
export GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.com GIT_COMMITTER_DATE='2026-01-01T00:00:00Z'
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
rm -rf origin copy
git init -q -b main origin
seq 1 2000 >origin/numbers
git -C origin add numbers
git -C origin commit -q -m first
git -C origin checkout -q -b side
seq 1 2001 >origin/numbers
git -C origin commit -q -a -m second
git -C origin checkout -q main
echo text >origin/text
git -C origin add text
git -C origin commit -q -m third
git -C origin merge -q -m merged side
git clone -q --no-local origin copy
git -C copy log --format='%H %s'
git -C copy fsck --no-progress
git -C copy gc -q
git -C copy diff --stat HEAD~1
