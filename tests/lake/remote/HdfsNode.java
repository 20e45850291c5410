import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** An HDFS of one node on the loopback address, until it is killed: PORT FOLDER, and `new` for an empty one. */
public class HdfsNode {
  public static void main(String[] given) throws Exception {
    Configuration settings = new Configuration();
    settings.set("dfs.namenode.rpc-bind-host", "127.0.0.1");
    settings.set("dfs.permissions.enabled", "false");
    settings.set("dfs.namenode.safemode.extension", "0");
    MiniDFSCluster.Builder builder = new MiniDFSCluster.Builder(settings, new File(given[1]));
    builder.nameNodePort(Integer.parseInt(given[0]));
    builder.numDataNodes(1);
    builder.format(given.length > 2);
    MiniDFSCluster cluster = builder.build();
    cluster.waitActive();
    System.out.println("ready");
    Thread.sleep(Long.MAX_VALUE);
  }
}
