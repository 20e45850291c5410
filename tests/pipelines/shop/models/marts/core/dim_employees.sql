select e.employee_id, e.employee_name, e.store_id, m.employee_name as manager_name
from {{ ref('stg_employees') }} e
left join {{ ref('stg_employees') }} m on e.manager_id = m.employee_id
