import de.bwaldvogel.mongo.MongoServer;
import de.bwaldvogel.mongo.backend.memory.MemoryBackend;
import java.net.InetSocketAddress;

/** A MongoDB server in memory on a free port of 127.0.0.1; prints the port, ends when its standard input does. */
public class Server {
    public static void main(String[] args) throws Exception {
        MongoServer server = new MongoServer(new MemoryBackend());
        InetSocketAddress address = server.bind();
        System.out.println(address.getPort());
        System.out.flush();
        while (System.in.read() >= 0) {
        }
        server.shutdownNow();
    }
}
