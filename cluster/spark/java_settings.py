"""Which settings Java's threads go by, and which of Hadoop's are sent to tasks.

A thread of Spark that runs neither a task nor a session goes by Spark's defaults. The one that serves the state of a
bucket is such a thread: whatever the session says, it writes and formats Java for each of the state's variables in each
task. And each micro-batch with state sends Hadoop's settings to its tasks, two thirds of which are about YARN and
MapReduce, which nothing here runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from protocols.event_log import get_logger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLASS: Final = "fjord.Settings"
SOURCE: Final = """
package fjord;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.classic.SparkSession$;
import org.apache.spark.sql.internal.SQLConf;
import scala.Option;
import scala.runtime.AbstractFunction0;

public class Settings extends AbstractFunction0 {
    private final SQLConf otherwise;

    public Settings(SparkSession session) {
        otherwise = session.sessionState().conf();
    }

    public Object apply() {
        Option active = SparkSession$.MODULE$.getActiveSession();
        if (active.isDefined()) {
            SparkSession session = (SparkSession) active.get();
            if (!session.sparkContext().isStopped()) {
                return session.sessionState().conf();
            }
        }
        return otherwise;
    }

    public static void forget(Configuration hadoop) {
        List names = new ArrayList();
        for (Iterator entries = hadoop.iterator(); entries.hasNext();) {
            String name = (String) ((Map.Entry) entries.next()).getKey();
            if (name.startsWith("yarn.") || name.startsWith("mapreduce.")) {
                names.add(name);
            }
        }
        for (Iterator each = names.iterator(); each.hasNext();) {
            hadoop.unset((String) each.next());
        }
    }
}
"""

log = get_logger(__name__)


def use_settings_in_all_threads(session: SparkSession) -> None:
    """Let all of Java's threads go by the settings of a session, and send no settings that nothing reads.

    Parameters
    ----------
    session
        The session. Its streaming queries run already: each of them gives the threads Spark's defaults again.
    """
    from py4j.protocol import Py4JError  # noqa: PLC0415 - needs JAVA_HOME to be set

    java: Any = session._jvm  # noqa: SLF001 - no setting of Spark's reaches this
    hadoop = session.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001
    try:
        compiler = java.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(hadoop.getClassLoader())
        compiler.cook(SOURCE)
        ours = compiler.getClassLoader().loadClass(CLASS)
        (make,) = ours.getConstructors()
        java.org.apache.spark.sql.internal.SQLConf.setSQLConfGetter(
            make.newInstance(_array(session, session._jsparkSession))  # noqa: SLF001
        )
        (forget,) = (method for method in ours.getMethods() if method.getName() == "forget")
        forget.invoke(None, _array(session, hadoop))
    except Py4JError as error:
        log.info("each bucket's state takes longer to be opened", reason=str(error))


def _array(session: SparkSession, argument: Any) -> Any:
    """Return an array of Java's that holds one argument."""
    gateway: Any = session.sparkContext._gateway  # noqa: SLF001 - PySpark has no other way to Java
    array = gateway.new_array(gateway.jvm.Object, 1)
    array[0] = argument
    return array
