"""How Java writes files on a local disk: with no other process for each.

To set permissions, Hadoop starts a `chmod` for every file and folder that it makes, four times in a micro-batch, unless
it finds its own native library, which PySpark does not bring. Java can set them itself. A class that does is compiled
here by the compiler that Spark has for its own code, and takes the place of Hadoop's class for local files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from protocols.event_log import get_logger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLASS: Final = "fjord.LocalFiles"
SOURCE: Final = """
package fjord;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

public class LocalFiles extends LocalFileSystem {
    public LocalFiles() {
        super(new Plain());
    }

    public static class Plain extends RawLocalFileSystem {
        public void setPermission(Path path, FsPermission permission) throws IOException {
            if (permission.getStickyBit()) {
                super.setPermission(path, permission);
            } else {
                String text = permission.toString();
                Files.setPosixFilePermissions(pathToFile(path).toPath(), PosixFilePermissions.fromString(text));
            }
        }
    }
}
"""

log = get_logger(__name__)


def write_local_files_quickly(session: SparkSession) -> None:
    """Let Java set permissions of local files itself, and write no file of checksums beside each.

    Parameters
    ----------
    session
        A session in which nothing runs yet.
    """
    from py4j.protocol import Py4JError  # noqa: PLC0415 - needs JAVA_HOME to be set

    java: Any = session._jvm  # noqa: SLF001 - no setting of Spark's reaches this
    configuration = session.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001
    file_system = java.org.apache.hadoop.fs.FileSystem
    try:
        compiler = java.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(configuration.getClassLoader())
        compiler.cook(SOURCE)
        ours = java.org.apache.hadoop.conf.Configuration(configuration)
        ours.setClassLoader(compiler.getClassLoader())
        ours.set("fs.file.impl", CLASS)
        known = file_system.getLocal(configuration)
        known.close()  # and is forgotten: whatever asks for local files from now on is given the next one
        file_system.get(known.getUri(), ours)
    except Py4JError as error:
        log.info("Java starts a process for each file that it writes", reason=str(error))
    # Spark's default manager of checkpoints has none either.
    file_system.getLocal(configuration).setWriteChecksum(False)
