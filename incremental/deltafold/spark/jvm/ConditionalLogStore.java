package deltafold;

import io.delta.storage.S3SingleDriverLogStore;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.Arrays;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Delta's log on S3: the store itself refuses the second of two writers of a version, on whatever machines they are.
 *
 * Writes with If-None-Match, which S3 and most stores like it honour; needs Hadoop 3.4.2 or later.
 */
public class ConditionalLogStore extends S3SingleDriverLogStore {
  private static final String CONDITIONAL = "fs.option.create.conditional.overwrite";

  public ConditionalLogStore(Configuration conf) {
    super(conf);
  }

  public void write(Path path, Iterator actions, Boolean overwrite, Configuration conf) throws IOException {
    if (overwrite.booleanValue()) {
      super.write(path, actions, overwrite, conf);
      return;
    }
    StringBuilder lines = new StringBuilder();
    while (actions.hasNext()) {
      lines.append((String) actions.next()).append('\n');
    }
    byte[] content = lines.toString().getBytes(StandardCharsets.UTF_8);
    FileSystem system = path.getFileSystem(conf);
    try {
      FSDataOutputStreamBuilder builder = system.createFile(path);
      builder.overwrite(false);
      builder.must(CONDITIONAL, true);
      OutputStream out = (OutputStream) builder.build();
      out.write(content);
      out.close();
    } catch (IOException error) {
      if (!isRefusal(error)) {
        throw error;
      }
      refuseOther(system, path, content, error);
    }
  }

  private static boolean isRefusal(IOException error) {
    return error instanceof org.apache.hadoop.fs.FileAlreadyExistsException
        || error instanceof org.apache.hadoop.fs.PathIOException
        || error.getClass().getSimpleName().startsWith("RemoteFileChanged");
  }

  /** A request that was sent again may meet its own first attempt: the same content is ours. */
  private static void refuseOther(FileSystem system, Path path, byte[] content, IOException error) throws IOException {
    byte[] found;
    try {
      FSDataInputStream in = system.open(path);
      try {
        found = in.readAllBytes();
      } finally {
        in.close();
      }
    } catch (FileNotFoundException missing) {
      throw error;
    }
    if (!Arrays.equals(found, content)) {
      throw new FileAlreadyExistsException(path.toString());
    }
  }

  /** What the store lists: it is consistent, so what this process wrote needs no memory. */
  public Iterator listFrom(Path path, Configuration conf) throws IOException {
    FileSystem system = path.getFileSystem(conf);
    FileStatus[] found = system.listStatus(path.getParent());
    java.util.ArrayList chosen = new java.util.ArrayList();
    for (int i = 0; i < found.length; i++) {
      if (found[i].getPath().getName().compareTo(path.getName()) >= 0) {
        chosen.add(found[i]);
      }
    }
    java.util.Collections.sort(chosen);
    return chosen.iterator();
  }
}
