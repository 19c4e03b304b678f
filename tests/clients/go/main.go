// A Go program that uses goroutines, the network and exec, which Go implements in its own way.
package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"strings"
	"sync"
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer connection.Close()
				io.Copy(connection, connection)
			}()
		}
	}()

	var group sync.WaitGroup
	echoed := make([]int, 50)
	for i := range echoed {
		group.Add(1)
		go func(i int) {
			defer group.Done()
			connection, err := net.Dial("tcp", listener.Addr().String())
			must(err)
			defer connection.Close()
			fmt.Fprintf(connection, "%d\n", i)
			line, err := bufio.NewReader(connection).ReadString('\n')
			must(err)
			fmt.Sscan(line, &echoed[i])
		}(i)
	}
	group.Wait()
	sum := 0
	for _, number := range echoed {
		sum += number
	}
	fmt.Println("echoed", sum)

	// user.Current calls the C library if the program is linked to it.
	who, err := user.Current()
	must(err)
	fmt.Println("user", who.Uid == fmt.Sprint(os.Getuid()))

	for i := 0; i < 5; i++ {
		out, err := exec.Command("echo", "child", fmt.Sprint(i)).Output()
		must(err)
		fmt.Println(strings.TrimSpace(string(out)))
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
