# Uses features of Perl: XS modules, children, pipes, sockets.
use strict;
use warnings;
use Digest::SHA qw(sha256_hex);
use List::Util qw(sum);
use POSIX qw(floor);
use Socket;

$| = 1;
print sha256_hex('slice'), "\n";
print sum(map { $_ * 2 } 1 .. 10), ' ', floor(2.7), "\n";
print `echo child`;
socketpair(my $one, my $other, AF_UNIX, SOCK_STREAM, PF_UNSPEC) or die;
my $pid = fork() // die;
if ($pid == 0) {
    syswrite($other, "from a child\n");
    exit 3;
}
print scalar(<$one>);
waitpid($pid, 0);
print 'ended with ', $? >> 8, "\n";
